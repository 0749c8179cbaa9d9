"""Write docs/packages.md: what packages compute under `as_torch()`, and with PyTorch.

    python scripts/packages.py --ours PYTHON --torchs PYTHON --parts timm

Each is a Python that has the packages; the first has JAX and not PyTorch, the second PyTorch.  A part of the page is a
module of scripts/package_cases; parts that are not asked for stay as they are on the page.

    python scripts/packages.py --share 1/3 --folder FOLDER --figures      with the Python that has PyTorch
    python scripts/packages.py --share 1/3 --folder FOLDER --check        with the one that has JAX

check a third of the small cases, one environment after the other, and leave the page as it is.
"""

import argparse
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "packages.md"
TOLERANCE = 1e-4
INTRODUCTION = """# Packages

What runs, unmodified, under `xgrad.as_torch()`, in float32 on the CPU; `scripts/packages.py` writes this page.  In
parentheses is the largest difference, of an array relative to its largest absolute value.
"""
_libraries: list[Any] = []  # their operators live as long as they do
_FAST = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "HF_HUB_OFFLINE": "1"}  # compiling takes most of the time


def parts() -> list[str]:
    """Return the names of the page's parts."""
    files = sorted((ROOT / "scripts" / "package_cases").glob("*.py"))
    return [file.stem for file in files if file.stem != "__init__" and "\nTITLE" in file.read_text()]


def run(part: str, names: list[str], which: str, folder: Path) -> None:
    """Compute cases with PyTorch or xgrad; print a line of JSON for each, and put the arrays into `folder`."""
    warnings.simplefilter("ignore")
    if which == "xgrad":
        import xgrad

        xgrad.as_torch()
    else:
        without_library()
    cases = importlib.import_module(f"scripts.package_cases.{part}")
    for name in names:
        start = time.process_time()
        try:
            cells, arrays = cases.measured(name, folder, which == "torch")
            np.savez(
                _arrays(folder, which, name),
                **{f"{i} {key}".replace("/", ":"): value for i, (key, value) in enumerate(arrays.items())},
            )
            found: dict[str, Any] = {"cells": cells}
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            found = {"error": f"{type(error).__name__}: {error}"[:200].replace("\n", " "), "place": str(place)}
            if os.environ.get("PACKAGES_TRACEBACK"):
                traceback.print_exc()
        found["seconds"] = round(time.process_time() - start, 1)
        print(json.dumps([name, found]), flush=True)


def without_library() -> None:
    """Have torchvision be imported by a PyTorch that its library does not fit, as one for the CPU.

    Its Python part names two operators of the library, whose schemas are enough.
    """
    import torch  # noqa: TID251 - PyTorch

    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return
    try:
        torch.ops.load_library(Path(spec.origin).with_name("_C.so"))
    except OSError:
        _libraries.append(torch.library.Library("torchvision", "FRAGMENT"))
        for name in ("nms", "qnms"):
            _libraries[0].define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def difference(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> tuple[float, str]:
    """Return the largest difference, and where it is; infinity for another name, shape, kind of dtype or integer.

    Arrays of one kind, the first word of their names, have a common floor: a thousandth of the largest value of them.
    """
    worst, where = 0.0, ""
    if ours.keys() != theirs.keys():
        return float("inf"), f"the names of {sorted(ours.keys() ^ theirs.keys())[:3]}"
    largest: dict[str, float] = {}
    for name, value in theirs.items():
        if value.size and value.dtype.kind == "f":
            kind = name.partition(" ")[0]
            largest[kind] = max(largest.get(kind, 0.0), float(np.abs(value).max()))
    for name, value in theirs.items():
        other = ours[name]
        if other.shape != value.shape or other.dtype.kind != value.dtype.kind:
            return float("inf"), f"{name}: {other.dtype}{other.shape}, not {value.dtype}{value.shape}"
        if not value.size or np.array_equal(other, value, equal_nan=value.dtype.kind == "f"):
            continue
        found = float("inf")
        if value.dtype.kind == "f":
            floor = max(float(np.abs(value).max()), 1e-3 * largest[name.partition(" ")[0]])
            found = float(np.abs(other.astype("float64") - value).max() / floor)
        if not found <= worst:  # NaN too
            worst, where = found, name
    return worst, where


def _arrays(folder: Path, which: str, name: str) -> Path:
    return folder / f"{which} {name.replace('/', ':')}.npz"


def row(part: str, name: str, ours: dict[str, Any], theirs: dict[str, Any], folder: Path) -> str:
    """Return a row of the table."""
    cases = importlib.import_module(f"scripts.package_cases.{part}")
    cells = theirs.get("cells") or ours.get("cells") or []
    if "error" in ours or "error" in theirs:
        text = "; ".join(f"{who}: {r['error']}" for who, r in (("xgrad", ours), ("torch", theirs)) if "error" in r)
    else:
        files = (_arrays(folder, which, name) for which in ("xgrad", "torch"))
        found, where = difference(
            *({key.partition(" ")[2]: value for key, value in np.load(file).items()} for file in files)
        )
        text = f"equal ({found:.0e})" if found <= TOLERANCE else f"differs ({found:.0e} at {where})"
        if TOLERANCE < found <= cases.__dict__.get("TOLERANCES", {}).get(name, 0):
            text = f"close ({found:.0e})"
    columns = cases.HEAD.splitlines()[-1].count("|") - 1
    cells = [name, *cells, *[""] * (columns - 2 - len(cells)), text]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def started(part: str, names: list[str], which: str, python: str, folder: Path) -> dict[str, Any]:
    """Run cases in a process of the given Python; one that ends early leaves an error for the case that ran."""
    command = [python, "-m", "scripts.packages", "--run", which, "--parts", part, "--cases", *names]
    wide = {"JAX_ENABLE_X64": "1"} if _is_wide(names[0]) else {}
    environment = {**_FAST, **wide, **os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    command += ["--folder", str(folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=environment, cwd=ROOT)
    found = dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
    ended = {"error": f"the process ended with {done.returncode}"}
    return {name: found.get(name, ended) for name in names}


def _is_wide(name: str) -> bool:
    return "JAX_ENABLE_X64=1" in name


def chosen(part: str, names: list[str], share: str | None) -> list[str]:
    """Return the cases of a part to run: those that are named, or a share of the small ones, or all."""
    cases = importlib.import_module(f"scripts.package_cases.{part}")
    if share is None:
        return [name for name in names or cases.CASES if name in cases.CASES]
    which, count = map(int, share.split("/"))
    small = cases.__dict__.get("SMALL", cases.CASES) if count > 1 else cases.CASES
    before = sum(map(ord, part))  # so that parts of one case have their turns in different shares
    return [name for i, name in enumerate(small, before) if i % count == which]


def batches(names: list[str], together: int) -> list[list[str]]:
    """Return the names in groups that share a process."""
    kinds = [[name for name in names if _is_wide(name) is wide] for wide in (False, True)]
    return [kind[i : i + together] for kind in kinds for i in range(0, len(kind), together)]


def written(part: str, rows: list[str], version: str) -> str:
    """Return the page with the rows of a part, those of other cases and parts as they were."""
    cases = importlib.import_module(f"scripts.package_cases.{part}")
    sections = dict.fromkeys(parts(), "")
    text = PAGE.read_text() if PAGE.exists() else ""
    for section in text.split("\n## ")[1:]:
        title = section.partition("\n")[0].split()[0]
        if title == "Speed":  # written by hand
            sections[title] = "## " + section.strip()
        for name in parts():
            if importlib.import_module(f"scripts.package_cases.{name}").TITLE.split()[0] == title:
                sections[name] = "## " + section.strip()
    old = [line for line in sections[part].splitlines() if line.startswith("| ")][2:]
    known = {line.split(" | ")[0]: line for line in [*old, *rows]}
    rows = [line for name in cases.CASES if (line := known.get(f"| {name}"))]
    sections[part] = f"## {cases.TITLE.format(version=version)}\n\n{cases.HEAD}\n" + "\n".join(rows)
    return "\n".join([INTRODUCTION, *(f"{section}\n" for section in sections.values() if section)])


def main() -> None:
    """Write the page; with --run, print the figures of this Python."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ours", default=sys.executable)
    parser.add_argument("--torchs", default=sys.executable)
    parser.add_argument("--parts", nargs="*", default=parts())
    parser.add_argument("--cases", nargs="*", default=[])
    parser.add_argument("--together", type=int, default=8, help="how many cases share a process")
    parser.add_argument("--folder", type=Path, help="where weights and arrays are put, and PyTorch's are found again")
    parser.add_argument("--run", choices=("xgrad", "torch"))
    parser.add_argument("--share", help="K/N: the K-th of N shares of the small cases; 0/1 has all cases")
    parser.add_argument("--figures", action="store_true", help="PyTorch's alone, into --folder")
    parser.add_argument("--check", action="store_true", help="write no page; the status is 1 if a case differs")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="no case begins later")
    args = parser.parse_args()
    if args.run:
        run(args.parts[0], args.cases, args.run, args.folder)
        return
    with tempfile.TemporaryDirectory() as temporary:
        sys.exit(compared(args, args.folder or Path(temporary)))


def compared(args: argparse.Namespace, folder: Path) -> int:
    """Run cases both ways, and write the page or check; return the exit status."""
    begun, status, late = time.monotonic(), 0, []
    for part in args.parts:
        place = folder / part
        place.mkdir(parents=True, exist_ok=True)
        number = version(args.ours, importlib.import_module(f"scripts.package_cases.{part}").TITLE.split()[0])
        for some in batches(chosen(part, args.cases, args.share), args.together):
            if time.monotonic() - begun > 60 * args.minutes:
                late += some
                continue
            known = {name: place / f"torch {name.replace('/', ':')}.json" for name in some}
            missing = [name for name in some if not known[name].exists()]
            for name, result in started(part, missing, "torch", args.torchs, place).items() if missing else ():
                known[name].write_text(json.dumps(result))
            theirs = {name: json.loads(file.read_text()) for name, file in known.items()}
            if args.figures:
                print(part, *theirs, sep="; ", flush=True)
                continue
            ours = started(part, some, "xgrad", args.ours, place)
            rows = []
            for name in some:
                rows.append(row(part, name, ours[name], theirs[name], place))
                seconds = [found.get("seconds", "?") for found in (theirs[name], ours[name])]
                print(rows[-1], *seconds, ours[name].get("place", ""), flush=True)
                if not rows[-1].split(" | ")[-1].startswith(("equal", "close")):
                    status = 1
            if not args.check:
                PAGE.write_text(written(part, rows, number))
    if late:
        print(f"not run, for want of time: {', '.join(late)}")
    if not (args.check or args.figures):
        print(f"written: {PAGE.relative_to(ROOT)}")
    return status if args.check else 0


def version(python: str, package: str) -> str:
    """Return the version of a package that a Python has."""
    code = f"import importlib.metadata; print(importlib.metadata.version({package!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=False).stdout.strip() or "?"


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
