"""Write docs/operators.md: every operator, its forms, what it saves for backward, what agrees with torch.

    python scripts/make_operators.py            # write it
    python scripts/make_operators.py --check    # exit 1 if it is stale

The declarations say what there is.  What agrees is in docs/parity.json, which `python -m scripts.parity --write` makes:
for each dtype and each entry of torch's operator database one sign for each check, and what differs.
"""

import argparse
import inspect
import json
import pathlib
import sys
from collections import Counter

from xgrad.base.unsupported import TABLE
from xgrad.dispatch import declare, tables
from xgrad.dispatch.operator import formula_of, linear

DOCS = pathlib.Path(__file__).parents[1] / "docs"
PARITY = json.loads((DOCS / "parity.json").read_text())
CHECKS = PARITY["checks"]
NAMESPACES = {"": "xgrad", **{name: f"xgrad.{name}" for name in tables.FUNCTIONS if name}}

# Why an entry does not agree.  One that is not here is a fault: the script fails.
REASONS = {
    "addbmm": "torch's in-place form changes the shape of what it writes to",
    "as_strided_scatter": "torch is wrong: it gives 1 where the input was overwritten, and 0 elsewhere",
    "chalf": "XLA has no arrays of complex32",
    "cholesky_inverse": "torch's tangent is inexact; this one agrees with 50 digits",
    "cov": "rounding: weights in float32 for data in float64",
    "linalg.norm.subgradients_at_zero": "torch gives NaN where the subgradient is constant",
    "logcumsumexp": "torch's tangent is inexact",
    "masked.logaddexp": "torch gives NaN where both elements are masked",
    "nn.functional.linear_cross_entropy.chunked": "torch has no second derivative of it",
    "special.bessel_j0": "torch is wrong: it leaves out a leading coefficient of Cephes",
    "special.bessel_y1": "torch is wrong: it leaves out a leading coefficient of Cephes",
    "unsafe_chunk": "the pieces share memory in torch, without a promise; here each has its own",
    "unsafe_split": "the pieces share memory in torch, without a promise; here each has its own",
}

INTRODUCTION = """# Operators

Made by `scripts/make_operators.py` from the declarations and from `docs/parity.json`, which `python -m scripts.parity
--write` makes with torch; do not edit.

**Forms**: f function, m method, i in-place method, o `out=`, and Python's operators.  **Saved**: what backward needs if
every argument requires grad; for the gradient of one argument alone it is less where the others' formulas named it.
"(derived)": without a formula, the derivative is JAX's of the function.  **Derivatives** are of any order, in
reverse and in forward mode, unless it says "none"; *composite*: made of other operators, which record themselves.

**Against torch {torch}**: for each entry of torch's operator database one sign for each of {checks}:
`+` agrees, `x` does not, `o` there is none, `.` does not apply.  In double precision {float64} inputs an entry, all
checks; in the other dtypes {float32} of each pointwise function, reduction and FFT, forward and grad.

{summary}
"""


def saved(op: declare.Operator) -> str:
    """What backward needs, as text."""
    if not op.differentiable:
        return ""
    names = [*op.parameters, *([op.variadic] if op.variadic else [])]
    results = {"result", "results", *getattr(op.outputs, "_fields", ())}
    wanted: set[str] = set()
    derived = False
    for name in names:
        if op.defaults.get(name) is not None:
            continue  # a number, like alpha=1
        formula = formula_of(op, name)
        if formula is None and op.formulas:
            continue  # an index, a mask, a key: nothing to differentiate
        if formula is None:
            derived = True
            wanted.update(names)
        elif formula is linear:
            wanted.update(n for n in names if n != name and op.defaults.get(n, n) is not None)
        else:
            wanted.update(set(inspect.signature(formula).parameters) & ({*names} | results))
    shown = [n for n in (*names, *sorted(results)) if n in wanted]
    text = ", ".join(shown) or "nothing"
    return f"{text} (derived)" if derived else text


def forms(space: str, bare: str, function: object) -> str:
    """f, m, i, o and Python's operators."""
    methods = {} if space else tables.METHODS
    written = tables.FUNCTIONS[space] if space else methods
    found = "f" + "m" * (bare in methods) + "i" * (f"{bare}_" in written)
    try:
        if "out" in inspect.signature(function).parameters:  # pyright: ignore[reportArgumentType]
            found += "o"
    except ValueError:
        pass
    dunders = [f"`{d}`" for d in (f"__{bare}__", f"__r{bare}__", f"__i{bare}__") if d in methods]
    return " ".join([found, *dunders])


def results_of(name: str, entries: dict) -> list[tuple[str, list]]:
    """The database's entries for a function: its own and its variants (`name.variant`, `name:variant`)."""
    return [(n, e) for n, e in entries.items() if n == name or n.startswith((f"{name}.", f"{name}:"))]


def summary(known: dict) -> str:
    """Counts of entries that agree, for each check and dtype."""
    lines = ["| | " + " | ".join(CHECKS) + " |", "| --- |" + " --- |" * len(CHECKS)]
    for dtype, entries in known["results"].items():
        cells = []
        for i in range(len(CHECKS)):
            counts = Counter(marks[i] for marks, *_ in entries.values())
            applicable = counts["+"] + counts["x"] + counts["o"]
            cells.append(f"{counts['+']}/{applicable}" if applicable else "")
        lines.append(f"| {dtype} | {' | '.join(cells)} |")
    return "\n".join(lines)


def table(space: str, known: dict) -> list[str]:
    """The rows of one namespace; names of one function share a row."""
    shared: dict[int, list[str]] = {}
    functions = {}
    for name, function in sorted(tables.FUNCTIONS[space].items()):
        if name.isidentifier() and not name.endswith("_") and not name.startswith("_"):
            shared.setdefault(id(function), []).append(name)
            functions[id(function)] = function
    others = [d for d in known["results"] if d != "float64"]
    head = ["", "forms", "saved", "float64", *others]
    lines = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    by_function = {id(op_function(op)): op for op in tables.OPERATORS.values()}
    for key, names in shared.items():
        full = [f"{space}.{n}" if space else n for n in names]
        op = by_function.get(key) or next(filter(None, map(tables.OPERATORS.get, (*full, *names))), None)
        keeps = "*composite*" if op is None else saved(op) if op.differentiable else "derivatives: none"
        cells = []
        for dtype in ("float64", *others):
            found = [e for n in full for e in results_of(n, known["results"].get(dtype, {}))]
            end = len(CHECKS) if dtype == "float64" else 2
            cells.append(" ".join(dict.fromkeys(f"`{e[0][:end]}`" for _, e in found)))
        lines.append(
            f"| {', '.join(names)} | {forms(space, names[0], functions[key])} | {keeps} | {' | '.join(cells)} |"
        )
    return lines


def op_function(op: declare.Operator) -> object:
    space, _, bare = op.name.rpartition(".")
    return tables.FUNCTIONS.get(space, {}).get(bare)


def failures(known: dict) -> list[str]:
    """Every check that does not agree, with what the comparison said."""
    lines = ["| entry | dtype | check | what differs | why |", "| --- | --- | --- | --- | --- |"]
    for dtype, entries in known["results"].items():
        for name, (_, *reasons) in entries.items():
            for check, reason in (reasons[0] if reasons else {}).items():
                said = " ".join(str(reason).split()).replace("|", "\\|")[:120]
                lines.append(f"| {name} | {dtype} | {check} | {said} | {REASONS[name]} |")
    return lines


def unsupported() -> list[str]:
    """What raises NotImplementedError, with the alternatives."""
    lines = ["| names | why | instead |", "| --- | --- | --- |"]
    for space, (reason, alternative), names in TABLE:
        where = f"{space}." if space else ""
        lines.append(f"| {', '.join(where + n for n in names.split())} | {reason} | {alternative} |")
    return lines


def document(known: dict) -> str:
    parts = [
        INTRODUCTION.format(torch=known["torch"], **known["samples"], checks=", ".join(CHECKS), summary=summary(known))
    ]
    for space, title in NAMESPACES.items():
        parts.append(f"## {title}\n\n" + "\n".join(table(space, known)) + "\n")
    parts.append("## What does not agree\n\n" + "\n".join(failures(known)) + "\n")
    parts.append("## What XLA cannot express\n\n" + "\n".join(unsupported()) + "\n")
    return "\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only say whether the document is stale")
    options = parser.parse_args()
    target = DOCS / "operators.md"
    text = document(PARITY)
    if options.check:
        stale = not target.exists() or target.read_text() != text
        print("docs/operators.md is stale: run scripts/make_operators.py" if stale else "docs/operators.md is fresh")
        return int(stale)
    target.write_text(text)
    print("written: docs/operators.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
