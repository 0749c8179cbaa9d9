"""What xgrad promises, measured: each figure is a ratio within one run, and stands with its spread and its bound.

One thread for each library, on one processor where the system can say so.  Exits with 1 if a bound does not hold, or
if a row failed to run; rows whose library is not installed say so, and count as neither.
"""

import argparse
import os
import sys

# Before jax starts: it reads its flags once, and has as many threads as there are processors.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"
os.environ.setdefault("JAX_PLATFORMS", "cpu")
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

from xgrad.cli import bench

from .against_torch import ROWS as AGAINST_TORCH
from .interop import ROWS as INTEROP
from .modules import ROWS as MODULES
from .report import report
from .rows import LAZY, ROWS
from .sharded import ROWS as SHARDED


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    bench.add_arguments(parser, rounds=25)
    parser.set_defaults(parser=parser)
    rows = sorted(ROWS + AGAINST_TORCH + INTEROP + MODULES + SHARDED, key=lambda row: row.group, reverse=True)
    rows.sort(key=lambda row: row.group == LAZY)  # last: see rows.py
    results = report(rows, parser.parse_args())
    return 1 if any(result.failed or result.verdict == "FALLS SHORT" for result in results) else 0


sys.exit(main())
