"""Ask a chip's compiler about each operator of the table, and write the page `docs/chips.md` and its figures.

    JAX_PLATFORMS=cpu python scripts/chip_table.py                    # the whole table: an hour of one core
    JAX_PLATFORMS=cpu python scripts/chip_table.py --only softmax     # operators with this in their names, printed
    JAX_PLATFORMS=cpu python scripts/chip_table.py --target cuda:t4   # by the compiler for another chip
    JAX_PLATFORMS=cpu python scripts/chip_table.py --page             # the page alone, from the figures

It needs libtpu (`pip install "jax[tpu]"`), or the plugin of JAX for CUDA, and no chip.  Each program has 30 seconds.  A
program is the first sample of an operator, its sizes multiplied until bytes mean something; kernels of convolutions
stay.
"""

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import jax
import numpy as np

import xgrad
from xgrad.base.dtypes import INEXACT, bfloat16
from xgrad.base.limits import x64_for_now
from xgrad.base.platforms import tracing_for
from xgrad.conformance import operators
from xgrad.conformance.cases import Case, fits, read, samples_of
from xgrad.conformance.operator_rows import operators as table
from xgrad.tensor import from_array

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "chips.md"
FIGURES = {"tpu:v5e": ROOT / "docs" / "chips.json", "cuda:t4": ROOT / "docs" / "chips_t4.json"}
DTYPES = ("float32", "bfloat16", "int32", "complex64")
WIDE = ("float64", "int64", "complex128")
LIMIT = 30  # seconds of a program
SLOW = 3.0  # seconds of a compilation that the page names
MUCH = 4.0  # bytes accessed, by those of the arguments and results, that the page names
SMALL = 1 << 16  # bytes; below these tiles and constants count more than the program
MOST_NAMED = 24  # programs that are refused for one reason
SAME = 110  # characters by which two reasons are one
LARGEST = 1 << 20  # elements of the largest argument
PLAIN, REFUSED, ENDS, SLOW_STATE = "compiles", "refused", "ends the compiler", "does not end"
STATES = {"refused": REFUSED, "does not fit": REFUSED, "ends the compiler": ENDS, "slow": SLOW_STATE}  # of answers

Job = tuple[str, str, str]  # an operator, a dtype, "forward" or "gradient"


def jobs(dtypes: tuple[str, ...] = DTYPES) -> Iterator[Job]:
    """Yield what the table asks: forward, and the gradient where there is one."""
    for name, op in table().items():
        for dtype in dtypes:
            column = bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
            if any(fits(op, sample, column) for sample in samples_of(op)):
                yield name, dtype, "forward"
                if op.differentiable and not op.missing and column in INEXACT:
                    yield name, dtype, "gradient"


# -- asking ------------------------------------------------------------------------------------------------------------


def asked(target: str, name: str, dtype: str, check: str) -> dict[str, Any]:
    """Return the compiler's figures for an operator; {} if it has nothing to say in this dtype."""
    try:
        return _asked(target, name, dtype, check)
    except Exception as error:
        return {"state": REFUSED, "why": f"{type(error).__name__}: {error}".partition("\n")[0][:200]}


def _asked(target: str, name: str, dtype: str, check: str) -> dict[str, Any]:
    op, column = table()[name], bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    chip = xgrad.target(target, limit=LIMIT)
    with tracing_for(chip.platform), x64_for_now() if dtype in WIDE else nullcontext():
        number = next(i for i, sample in enumerate(samples_of(op)) if fits(op, sample, column))
        case = Case(op, number, column)
        if check == "gradient" and not case.records:
            return {}

        def program(task: Any, *arrays: Any) -> list[Any]:
            return [read(found) for found in task([from_array(x) for x in arrays]).values()]

        forward = partial(program, partial(operators.forward, case))
        times = 1 if case.random else _times(name, case.arrays)
        for factor in dict.fromkeys((times, 1)):
            shapes = _larger(name, [a.shape for a in case.arrays], factor)
            given = [jax.ShapeDtypeStruct(shape, a.dtype) for shape, a in zip(shapes, case.arrays)]
            try:
                (results,) = jax.eval_shape(forward, *given)
            except Exception as error:
                if factor == 1 and case.exact and "whose compiler has" not in str(error):  # xgrad's words for a chip
                    return {}  # the operator does not take it
                if factor == 1:
                    raise
                continue  # the sample has sizes among its static arguments
            if sum(map(_bytes, results)) <= 64 * LARGEST:
                break
        task = forward
        if check == "gradient":
            like = operators.with_gradient(case, results)
            given += [jax.ShapeDtypeStruct(r.shape, r.dtype) for r in like]
            task = partial(program, partial(operators.gradient, case))
        if not given:
            return {}
        answer = chip.ask(task, *given)
        if answer.state != PLAIN:
            return {"state": STATES[answer.state], "why": answer.said.partition("\n")[0][:200]}
        return {
            "state": PLAIN,
            "seconds": round(answer.seconds, 2),
            "bytes": int(answer.bytes_accessed or 0),
            "ideal": sum(map(_bytes, (*given, *jax.tree.leaves(jax.eval_shape(task, *given))))),
            "gathers": answer.hlo.count(" gather("),
            "scatters": answer.hlo.count(" scatter("),
        }


def _bytes(x: Any) -> int:
    return prod(x.shape) * x.dtype.itemsize


def _larger(name: str, shapes: list[tuple[int, ...]], factor: int) -> list[tuple[int, ...]]:
    """Return the shapes with all sizes multiplied, but those of 1; of a convolution the batch, and not the kernel."""
    if not name.startswith("conv"):
        return [tuple(n * factor if n > 1 else n for n in shape) for shape in shapes]
    inputs, weight, *bias = shapes
    kernel = (0,) if name == "conv_tbc" else range(2, len(weight))
    weight = tuple(n if i in kernel else n * factor for i, n in enumerate(weight))
    return [tuple(n * factor for n in inputs), weight, *(tuple(n * factor for n in shape) for shape in bias)]


def _times(name: str, arrays: list[Any]) -> int:
    """Return the power of two by which sizes are multiplied."""
    factor = 64
    while factor > 1 and any(prod(shape) > LARGEST for shape in _larger(name, [a.shape for a in arrays], factor)):
        factor //= 2
    return factor


# -- the table ---------------------------------------------------------------------------------------------------------


def walk(target: str, wanted: list[Job], found: dict[str, Any], write: Any = None) -> dict[str, Any]:
    """Return the figures of jobs, by "operator dtype check"."""
    for number, job in enumerate(wanted):
        answer = asked(target, *job)
        key = " ".join(job)
        found.pop(key, None)
        if answer:
            found[key] = answer
        if write is not None and number % 20 == 0:
            write(found)
    if write is not None:
        write(found)
    return found


def kept(path: Path, found: dict[str, Any]) -> None:
    lines = [f"{json.dumps(key)}: {json.dumps(found[key])}" for key in sorted(found)]
    part = path.with_suffix(".part")  # an interrupt leaves the last figures as they are
    part.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    part.replace(path)


def ratio(row: dict[str, Any]) -> float:
    """Return the bytes accessed by those of arguments and results; 0 where these say little."""
    return row["bytes"] / row["ideal"] if row["state"] == PLAIN and row["ideal"] >= SMALL else 0.0


# Why a program accesses many times its bytes, by how its operator's name begins.  One row of each line was looked up in
# its HLO, with and without `xla_max_cross_program_prefetches=0`.
REASONS = {
    ("linalg_vander", "gcd", "lcm", "special_", "igamma", "logcumsumexp", "mvlgamma", "polygamma",
     "pow (pow)", "sinc", "cumprod", "cumsum", "cumulative"):
        "a series, recursion or scan: each step reads and writes all numbers",
    ("linalg_vector_norm", "linalg_matrix_norm", "std", "var", "cosine", "dist", "total_norm", "normalize", "renorm",
     "pairwise", "triplet", "softmax", "log_softmax", "softmin", "logsumexp", "group_norm", "native_", "norm", "hypot",
     "cov", "corrcoef", "cdist"):
        "several passes: a mean, or a largest number that keeps squares inside the range, is known before the next one",
    ("linalg_matrix_power", "addbmm", "baddbmm", "bmm", "kron", "bilinear", "mm", "matmul", "scaled_dot",
     "chain_matmul"):
        "float32 products are several bfloat16 passes, and small operands are moved to fast memory first",
    ("linalg_", "cholesky", "ldl", "lobpcg", "logdet", "ormqr", "triangular", "slogdet", "pinverse", "svd", "geqrf"):
        "a factorization loops over the columns and reads the matrix for each",
    ("fft_fftshift", "fft_ifftshift", "roll", "cat", "diff", "gradient", "trapezoid", "pad", "isin", "flip"):
        "parts are cut at places that are not multiples of a tile of 8 x 128, and put together",
    ("fft_", "stft", "istft"): "a transform is products with matrices of roots, the parts of complex numbers apart",
    ("conv",):
        "few channels are padded to 128 lanes (with 128 channels it is 1.1 times), and float32 is bfloat16 passes",
    ("pixel_", "channel_shuffle"): "a small last dimension is padded to 128 lanes",
    ("avg_pool", "max_pool", "max_unpool", "adaptive", "lp_pool", "fractional", "unfold", "fold", "im2col", "col2im",
     "local_response"): "windows overlap, and a small last dimension is padded to 128 lanes",
    ("median", "nanmedian", "mode", "kthvalue", "topk", "sort", "argsort", "quantile", "nanquantile", "msort"):
        "a sort, whose passes read and write numbers and indices",
    ("sum", "mean", "prod", "min", "max", "amin", "amax", "aminmax", "argmin", "argmax", "vander", "lstm", "gru", "rnn",
     "recurrent", "nansum", "all", "any", "count_nonzero"):
        "small operands are moved to fast memory first, which counts as a write and two reads",
}  # fmt: skip


def reason(key: str, row: dict[str, Any]) -> str:
    """Return the reason for which a program accesses many times the bytes of its arguments and results."""
    name, dtype, _ = key.rsplit(" ", 2)
    if row["gathers"] or row["scatters"]:
        return "the index is data, so XLA gathers or scatters one element or row at a time"
    if dtype in WIDE:
        return f"{dtype} is pairs of 32-bit numbers: one operation is several programs over their halves"
    return next((why for names, why in REASONS.items() if name.startswith(names)), "not looked up")


def remarks(key: str, row: dict[str, Any]) -> list[str]:
    """Return what the page says of an operator's program that is not plain."""
    if row["state"] != PLAIN:
        return [row["state"] + (f": {row['why']}" if "why" in row else "")]
    found = [f"{row['seconds']:.0f} s to compile"] if row["seconds"] >= SLOW else []
    if ratio(row) >= MUCH:
        found.append(f"{ratio(row):.0f} times the bytes: {reason(key, row)}")
    return found


def told(found: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Return the remarks with the programs that have them, those that are refused for one reason together."""
    rows: dict[str, tuple[str, list[str]]] = {}
    for key in sorted(found):
        if said := "; ".join(remarks(key, found[key])):
            said = re.sub(r'"\w+" not implemented', "not implemented", said)
            one = found[key]["state"] == REFUSED
            rows.setdefault(said[:SAME] if one else key, (said, []))[1].append(key)
    return [*rows.values()]


def named(keys: list[str]) -> str:
    return ", ".join(keys) if len(keys) <= MOST_NAMED else f"{len(keys)} programs, such as {keys[0]}"


def page(figures: dict[str, dict[str, Any]]) -> str:
    """Return the page: a row for each target, dtype and check, and the programs that are not plain."""
    states = (PLAIN, REFUSED, ENDS, SLOW_STATE)
    lines = [
        "# Operators on a chip",
        "",
        "The first samples of the operators, enlarged, as the compilers for chips that are not here see them.  `python",
        "scripts/chip_table.py` writes this page.  Operators that take no tensor, or not the dtype, have no program.",
        "",
        f"| | programs | {' | '.join(states)} | {SLOW:.0f} s or more | gathers or scatters |",
        f"| --- | --- |{' --- |' * (len(states) + 2)}",
    ]
    for target, found in figures.items():
        rows: dict[str, list[Any]] = {}
        for key, row in found.items():
            _, dtype, check = key.rsplit(" ", 2)
            rows.setdefault(f"{target}, {dtype}, {check}", []).append(row)
        for name, of in sorted(rows.items()):
            counts = [sum(row["state"] == state for row in of) for state in states]
            slow = sum(row.get("seconds", 0) >= SLOW for row in of)
            moved = sum(bool(row.get("gathers") or row.get("scatters")) for row in of)
            lines.append(f"| {' | '.join(map(str, (name, len(of), *counts, slow, moved)))} |")
    for target, found in figures.items():
        lines += [
            "", f"## {target}", "",
            f"Programs that are refused, take {SLOW:.0f} seconds to compile, or access {MUCH:.0f} times the bytes of",
            "their arguments and results (a compiler for a GPU does not count bytes), with the reason of its kind.", "",
            "| program | |", "| --- | --- |",
        ]  # fmt: skip
        lines += [f"| {named(keys)} | {said} |" for said, keys in told(found)]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="a part of an operator's name: prints, writes nothing")
    parser.add_argument("--target", default="tpu:v5e", choices=[*FIGURES])
    parser.add_argument("--dtypes", default=",".join(DTYPES), help="names of dtypes; 64-bit ones too")
    parser.add_argument("--missing", action="store_true", help="ask what the figures lack")
    parser.add_argument("--page", action="store_true", help="write the page alone")
    arguments = parser.parse_args()
    wanted = [*jobs(tuple(arguments.dtypes.split(",")))]
    if arguments.only is not None:
        for job in wanted:
            if arguments.only in job[0]:
                print(*job, json.dumps(walk(arguments.target, [job], {})), flush=True)
        return 0
    figures = {target: json.loads(path.read_text()) if path.exists() else {} for target, path in FIGURES.items()}
    if not arguments.page:
        found = figures[arguments.target]
        order = {name: i for i, name in enumerate(arguments.dtypes.split(","))}
        wanted.sort(key=lambda job: order[job[1]])
        asking = [job for job in wanted if not (arguments.missing and " ".join(job) in found)]
        walk(arguments.target, asking, found, partial(kept, FIGURES[arguments.target]))
    PAGE.write_text(page(figures))
    print({target: Counter(row["state"] for row in found.values()) for target, found in figures.items()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
