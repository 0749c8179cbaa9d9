"""Run a package's own tests with PyTorch and under `xgrad.as_torch()`, and compare: docs/api/torch.md has a table.

    python scripts/own_tests.py FOLDER [an argument of pytest ...]

FOLDER is the package's unpacked source archive; the package itself is installed (`pip install --no-deps`).  Each
library has a process of its own, with 64 bits.  Only tests that pass with PyTorch count.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

LIBRARIES = ("torch", "xgrad")


class Outcomes:
    """A plugin of pytest's: the outcome and the message of each test."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[str, str]] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome != "passed":
            outcome = "xfail" if hasattr(report, "wasxfail") else report.outcome
            crash = getattr(report.longrepr, "reprcrash", None)
            self.found[report.nodeid.replace("xgrad.Size", "torch.Size")] = (
                outcome,
                crash.message[:300] if crash else "",
            )

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.found[report.nodeid] = "failed", str(report.longrepr)[-300:]


def run(library: str, out: str, arguments: list[str]) -> None:
    """Run the tests in this folder, and write the outcomes to a file."""
    sys.path[0] = os.getcwd()  # in place of this script's folder
    if library == "xgrad":
        import xgrad

        xgrad.as_torch()
    import pytest  # after `as_torch`: the package's tests import torch

    outcomes = Outcomes()
    pytest.main(["-q", "-p", "no:cacheprovider", "-W", "ignore", *arguments], plugins=[outcomes])
    Path(out).write_text(json.dumps(outcomes.found))


def compared(folder: str, arguments: list[str]) -> str:
    """Return the counts of both libraries, and the failures that are xgrad's alone, the most frequent first."""
    results = {}
    environment = {**os.environ, "JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    with tempfile.TemporaryDirectory() as place:
        for library in LIBRARIES:
            out = os.path.join(place, library)
            command = [
                sys.executable,
                os.path.abspath(__file__),
                folder,
                "--library",
                library,
                "--out",
                out,
                *arguments,
            ]
            subprocess.run(command, cwd=folder, env=environment)
            results[library] = json.loads(Path(out).read_text())
    passed = {
        library: {name for name, (outcome, _) in results[library].items() if outcome == "passed"}
        for library in LIBRARIES
    }
    both = passed["torch"] & passed["xgrad"]
    lines = [f"{len(passed['torch'])} passed with PyTorch, {len(both)} of these with xgrad"]
    failed = Counter(results["xgrad"].get(name, ("", "did not run"))[1] for name in passed["torch"] - both)
    return "\n".join(
        lines
        + [f"{count:5d}  {message.splitlines()[0] if message else ''}" for message, count in failed.most_common(20)]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--library", choices=LIBRARIES, help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    given, arguments = parser.parse_known_args()
    if given.library:
        run(given.library, given.out, arguments)
    else:
        print(compared(given.folder, arguments))


if __name__ == "__main__":
    main()
