"""Print how much of xgrad's public interface has known types, by `pyright --verifytypes`; exit 1 below 95 %.

    python scripts/typed_score.py          # the score
    python scripts/typed_score.py --names  # also the names whose types are not known, and why

pyright counts each name of each module that does not begin with an underscore.
"""

import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
BOUND = 0.95


def python_of(folder: str) -> str:
    """Make an environment that has this checkout and what the present one has; return its interpreter.

    pyright takes a package from where the interpreter has installed it, which may be another checkout.
    """
    venv.create(folder, with_pip=False)
    (places,) = pathlib.Path(folder).glob("lib/python*/site-packages")
    (places / "checkout.pth").write_text("\n".join([str(ROOT), *(p for p in sys.path if p.endswith("-packages"))]))
    return os.path.join(folder, "bin", "python")


def verified() -> dict:
    """What pyright says of the whole package."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pyright", "--verifytypes", "xgrad", "--ignoreexternal", "--outputjson"]
        # Away from the checkout: its pyproject.toml is for checking files, and would be read.
        done = subprocess.run([*command, "--pythonpath", python_of(folder)], capture_output=True, text=True, cwd=folder)
    try:
        return json.loads(done.stdout)["typeCompleteness"]
    except ValueError:
        sys.exit(done.stdout + done.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--names", action="store_true", help="print the names whose types are not known")
    names = parser.parse_args().names
    found = verified()
    unknown = [s for s in found["symbols"] if s["isExported"] and not s["isTypeKnown"]]
    if names:
        for symbol in unknown:
            print(symbol["name"], *(f"\n    {said['message'].splitlines()[0]}" for said in symbol["diagnostics"][:1]))
        print(collections.Counter(".".join(symbol["name"].split(".")[:2]) for symbol in unknown).most_common(20))
    score = found["completenessScore"]
    print(f"{score:.1%} of {sum(found['exportedSymbolCounts'].values())} names have known types; {BOUND:.0%} are asked")
    return 0 if score >= BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
