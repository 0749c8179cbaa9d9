"""What maintains the repository: generated files, and figures of the documentation."""
