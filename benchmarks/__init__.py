"""What xgrad promises, measured: `python -m benchmarks` from the repository's folder (README.md says how and why)."""
