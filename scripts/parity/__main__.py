"""The command: compare all entries of the database, or some, in several processes."""

import argparse
import json
import multiprocessing
import os
import pathlib
import sys

import torch

from .cases import name_of
from .compare import CHECKS, DTYPES, SAMPLES, compare_named, in_dtype
from .libraries import database, join

RESULTS = pathlib.Path(__file__).parents[2] / "docs" / "parity.json"


def write(results: dict, all_entries: bool) -> None:
    """Put results into docs/parity.json: in place of all, or of those of the same entries."""
    known = json.loads(RESULTS.read_text())["results"]
    for dtype, entries in results.items():
        known[dtype] = dict(sorted({**({} if all_entries else known[dtype]), **entries}.items()))
    version = torch.__version__.partition("+")[0]
    everything = {"torch": version, "samples": SAMPLES, "checks": CHECKS, "results": known}
    RESULTS.write_text(json.dumps(everything, indent=0, sort_keys=True) + "\n")
    print(f"written: {RESULTS}")


def stale(results: dict) -> list[str]:
    """Return what docs/parity.json has otherwise: other marks, entries that it lacks or that the database lost."""
    known = json.loads(RESULTS.read_text())["results"]
    found = []
    for dtype, entries in known.items():
        listed = {name_of(info) for info in database.op_db if in_dtype(info, dtype)}
        found += [f"{dtype}: {name} is only in one of the file and the database" for name in listed ^ set(entries)]
    for dtype, entries in results.items():
        for name, (marks, *_) in entries.items():
            if name in known[dtype] and known[dtype][name][0] != marks:
                found.append(f"{dtype}: {name} {marks}, the file has {known[dtype][name][0]}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.parity", description=__doc__)
    parser.add_argument("entries", nargs="*", help="names of the database, such as linalg.svd; without any, all")
    parser.add_argument("--dtype", choices=DTYPES, action="append", help="a dtype; without any, all")
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1), help="processes (%(default)s)")
    parser.add_argument("--write", action="store_true", help="put the results into docs/parity.json")
    parser.add_argument("--check", action="store_true", help="exit with 1 if docs/parity.json has other marks")
    options = parser.parse_args()
    entries = {name_of(info): info for info in database.op_db}
    if unknown := set(options.entries) - set(entries):
        parser.error(f"the database has no {', '.join(sorted(unknown))}")
    pairs = [(name, dtype) for name in options.entries or entries for dtype in options.dtype or DTYPES]
    tasks = [(name, dtype) for name, dtype in pairs if in_dtype(entries[name], dtype)]
    results: dict = {}
    # A process that compiled many programs holds much memory: another takes its place.
    with multiprocessing.get_context("spawn").Pool(options.jobs, initializer=join, maxtasksperchild=25) as pool:
        for done, (name, dtype, found) in enumerate(pool.imap_unordered(compare_named, tasks, chunksize=4), 1):
            results.setdefault(dtype, {})[name] = found
            if options.entries:
                print(f"{name} {dtype} {found[0]}")
            for check, reason in (found[1] if len(found) > 1 else {}).items():
                print(f"{name} {dtype} {check}: {reason}")
            if done % 100 == 0:
                print(f"{done} of {len(tasks)}", file=sys.stderr)
    if options.write:
        write(results, not options.entries)
    if options.check and (found := stale(results)):
        print("docs/parity.json is stale:", *found, sep="\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
