"""Run all programs, or those that are named, in all modes: python -m tests.programs [--mode lazy] [NAME ...]."""

import argparse
import os
import sys
import time
import warnings

os.environ.setdefault("JAX_ENABLE_X64", "1")

from .harness import MODES, PROGRAMS, compare, enter_all


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--mode", action="append", choices=MODES)
    given = parser.parse_args()
    enter_all()
    warnings.simplefilter("ignore")
    failed = 0
    for name in given.names or PROGRAMS:
        for mode in given.mode or MODES:
            if mode == "compiled" and not PROGRAMS[name].compiled:
                continue
            start = time.perf_counter()
            try:
                gap = compare(name, mode)
            except Exception as error:
                failed += 1
                print(f"{name:45} {mode:9} {type(error).__name__}: {' '.join(str(error).split())[:300]}", flush=True)
            else:
                print(f"{name:45} {mode:9} {gap:.1e} {time.perf_counter() - start:6.1f} s", flush=True)
    print(f"{failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
