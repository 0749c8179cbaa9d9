"""Ask a chip's compiler about each operator of the table, and write the page `docs/chips.md` and its figures.

    JAX_PLATFORMS=cpu python scripts/chip_table.py                    # the whole table: an hour of one core
    JAX_PLATFORMS=cpu python scripts/chip_table.py --only softmax     # operators with this in their names, printed
    JAX_PLATFORMS=cpu python scripts/chip_table.py --page             # the page alone, from the figures

It needs libtpu (`pip install "jax[tpu]"`) and no chip.  The compiler runs in a child process, since some programs end
it; each has 60 seconds.  A program is the first sample of an operator, its sizes multiplied until bytes mean something.
"""

import argparse
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FIGURES, PAGE = ROOT / "docs" / "chips.json", ROOT / "docs" / "chips.md"
# libtpu asks these, where no chip says them.
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1", "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}  # fmt: skip
TOPOLOGY = "v5e:1x1"
DTYPES = ("float32", "bfloat16", "int32", "complex64")
WIDE = ("float64", "int64", "complex128")
LIMIT = 60  # seconds of a program
SLOW = 3.0  # CPU seconds of a compilation that the page names
MUCH = 4.0  # bytes accessed, by those of the arguments and results, that the page names
SMALL = 1 << 16  # bytes; below these tiles and constants count more than the program
LARGEST = 1 << 20  # elements of the largest argument
PLAIN, REFUSED, ENDS, SLOW_STATE = "compiles", "refused", "ends the compiler", "does not end"

Job = tuple[str, str, str]  # an operator, a dtype, "forward" or "gradient"


def jobs(dtypes: tuple[str, ...] = DTYPES) -> Iterator[Job]:
    """Yield what the table asks: forward, and the gradient where there is one."""
    import numpy as np

    from xgrad.conformance.cases import fits, samples_of
    from xgrad.conformance.operator_rows import operators
    from xgrad.dtypes import INEXACT, bfloat16

    for name, op in operators().items():
        for dtype in dtypes:
            column = bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
            if any(fits(op, sample, column) for sample in samples_of(op)):
                yield name, dtype, "forward"
                if op.differentiable and not op.missing and column in INEXACT:
                    yield name, dtype, "gradient"


# -- the child process ------------------------------------------------------------------------------------------------


def child() -> None:
    """Answer the jobs on stdin, a line each, until one ends the process."""
    import jax

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the compiler prints
    from jax.experimental import topologies

    topology = topologies.get_topology_desc(platform="tpu", topology_name=TOPOLOGY, chips_per_host_bounds=(1, 1, 1))
    where = jax.sharding.SingleDeviceSharding(topology.devices[0])
    for line in sys.stdin:
        try:
            answer = compiled(*json.loads(line), where)
        except Exception as error:
            answer = {"state": REFUSED, "why": f"{type(error).__name__}: {error}".partition("\n")[0][:200]}
        print(json.dumps(answer), file=answers, flush=True)


def compiled(name: str, dtype: str, check: str, where: Any) -> dict[str, Any]:
    """Return the compiler's figures for an operator; {} if it has nothing to say in this dtype."""
    from contextlib import nullcontext
    from functools import partial

    import jax
    import numpy as np

    from xgrad.conformance import operators
    from xgrad.conformance.cases import Case, fits, read, samples_of
    from xgrad.conformance.operator_rows import operators as table
    from xgrad.dtypes import bfloat16
    from xgrad.limits import x64_for_now
    from xgrad.platforms import tracing_for
    from xgrad.tensor import from_array

    op, column = table()[name], bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    with tracing_for("tpu"), x64_for_now() if dtype in WIDE else nullcontext():
        number = next(i for i, sample in enumerate(samples_of(op)) if fits(op, sample, column))
        case = Case(op, number, column)
        if check == "gradient" and not case.records:
            return {}

        def program(task: Any, *arrays: Any) -> list[Any]:
            return [read(found) for found in task([from_array(x) for x in arrays]).values()]

        forward = partial(program, partial(operators.forward, case))
        times = 1 if case.random else _times(case.arrays)
        for factor in dict.fromkeys((times, 1)):
            given = [jax.ShapeDtypeStruct(_larger(a.shape, factor), a.dtype, sharding=where) for a in case.arrays]
            try:
                (results,) = jax.eval_shape(forward, *given)
            except Exception:
                if factor == 1 and case.exact:
                    return {}  # the operator does not take it
                if factor == 1:
                    raise
                continue  # the sample has sizes among its static arguments
            if sum(map(_bytes, results)) <= 64 * LARGEST:
                break
        task = forward
        if check == "gradient":
            like = operators.with_gradient(case, results)
            given += [jax.ShapeDtypeStruct(r.shape, r.dtype, sharding=where) for r in like]
            task = partial(program, partial(operators.gradient, case))
        if not given:
            return {}
        lowered = jax.jit(task).trace(*given).lower(lowering_platforms=("tpu",))
        start = time.process_time()
        found = lowered.compile()
        seconds = time.process_time() - start
        cost, text = found.cost_analysis() or {}, found.as_text()
        return {
            "state": PLAIN,
            "seconds": round(seconds, 2),
            "bytes": int(cost.get("bytes accessed", 0)),
            "ideal": sum(map(_bytes, (*given, *jax.tree.leaves(jax.eval_shape(task, *given))))),
            "gathers": text.count(" gather("),
            "scatters": text.count(" scatter("),
        }


def _bytes(x: Any) -> int:
    return prod(x.shape) * x.dtype.itemsize


def _larger(shape: tuple[int, ...], factor: int) -> tuple[int, ...]:
    return tuple(n * factor if n > 1 else n for n in shape)


def _times(arrays: list[Any]) -> int:
    """Return the power of two by which all sizes are multiplied."""
    factor = 64
    while factor > 1 and any(prod(_larger(a.shape, factor)) > LARGEST for a in arrays):
        factor //= 2
    return factor


# -- the parent -------------------------------------------------------------------------------------------------------


class Compiler:
    """A child process that is started again after a program that ended it, or that took too long."""

    def __init__(self, limit: float = LIMIT) -> None:
        self.limit, self.process, self.reader, self.lines = limit, None, None, queue.Queue()

    def _start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--child"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, env={**os.environ, **ENVIRONMENT},
        )  # fmt: skip
        self.lines = lines = queue.Queue()
        self.reader = threading.Thread(target=self._read, args=(self.process.stdout, lines), daemon=True)
        self.reader.start()

    @staticmethod
    def _read(stream: Any, lines: queue.Queue) -> None:
        for line in stream:
            lines.put(line)
        lines.put("")

    def ask(self, job: Job) -> dict[str, Any]:
        first = self.process is None
        if first:
            self._start()
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        try:
            line = self.lines.get(timeout=self.limit + 60 * first)
        except queue.Empty:
            self.close()
            return {"state": SLOW_STATE, "why": f"after {self.limit} s"}
        if not line:
            self.close()
            return {"state": ENDS}
        return json.loads(line)

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.reader.join()
            with self.process:  # waits, and closes its pipes
                self.process = None


def walk(wanted: list[Job], found: dict[str, Any], write: Any = None) -> dict[str, Any]:
    """Return the figures of jobs, by "operator dtype check"."""
    compiler = Compiler()
    for number, job in enumerate(wanted):
        answer = compiler.ask(job)
        key = " ".join(job)
        found.pop(key, None)
        if answer:
            found[key] = answer
        if write is not None and number % 20 == 0:
            write(found)
    compiler.close()
    if write is not None:
        write(found)
    return found


def kept(found: dict[str, Any]) -> None:
    lines = [f"{json.dumps(key)}: {json.dumps(found[key])}" for key in sorted(found)]
    FIGURES.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def ratio(row: dict[str, Any]) -> float:
    """Return the bytes accessed by those of arguments and results; 0 where these say little."""
    return row["bytes"] / row["ideal"] if row["state"] == PLAIN and row["ideal"] >= SMALL else 0.0


# Why a program accesses many times its bytes: the likely reason, by how its operator's name begins.
REASONS = {
    ("linalg_", "cholesky", "ldl", "lobpcg", "logdet", "ormqr", "triangular", "slogdet", "pinverse"):
        "a factorization is a loop over columns, each of which goes through the matrix",
    ("addbmm", "baddbmm", "bmm", "matrix_power", "kron"):
        "float32 products are several bfloat16 passes, and small matrices are padded to tiles of 8 x 128",
    ("log_softmax", "logsumexp", "softmax", "softmin", "std", "var", "prod", "cumprod"):
        "several passes, each of which reads all numbers",
    ("sum", "mean", "cdist", "vander", "norm"): "a small last dimension is padded to 128 lanes",
}  # fmt: skip


def reason(name: str, row: dict[str, Any]) -> str:
    """Return the likely reason for which a program accesses many times the bytes of its arguments and results."""
    for names, why in REASONS.items():
        if name.startswith(names):
            return why
    if row["gathers"] or row["scatters"]:
        return "the places are data, and XLA gathers and scatters one element or row after the other"
    return "not looked up"


def remarks(name: str, row: dict[str, Any]) -> list[str]:
    """Return what the page says of an operator's program that is not plain."""
    if row["state"] != PLAIN:
        return [row["state"] + (f": {row['why']}" if "why" in row else "")]
    found = [f"{row['seconds']:.0f} s to compile"] if row["seconds"] >= SLOW else []
    if ratio(row) >= MUCH:
        found.append(f"{ratio(row):.0f} times the bytes: {reason(name, row)}")
    return found


def page(found: dict[str, Any]) -> str:
    """Return the page: a row for each dtype, and the programs that are not plain."""
    rows: dict[str, Counter] = {}
    for key, row in found.items():
        _, dtype, check = key.rsplit(" ", 2)
        rows.setdefault(f"{dtype}, {check}", Counter()).update([row["state"]])
    states = (PLAIN, REFUSED, ENDS, SLOW_STATE)
    lines = [
        "# Operators on a chip",
        "",
        f"What the compiler for a {TOPOLOGY} says of {len(found)} programs: operators of the table, on their first",
        "samples, enlarged.  `python scripts/chip_table.py` writes this page; it needs libtpu and no chip.",
        "",
        f"| | {' | '.join(states)} |",
        f"| --- |{' --- |' * len(states)}",
        *[
            f"| {name} | {' | '.join(str(counts[state]) for state in states)} |"
            for name, counts in sorted(rows.items())
        ],
        "",
        f"Programs that are refused, take {SLOW:.0f} CPU seconds to compile, or access {MUCH:.0f} times the bytes",
        "of their arguments and results, with the likely reason, which was not looked up row by row:",
        "",
        "| program | |",
        "| --- | --- |",
    ]
    lines += [f"| {key} | {'; '.join(said)} |" for key in sorted(found) if (said := remarks(key, found[key]))]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--only", help="a part of an operator's name: prints, writes nothing")
    parser.add_argument("--dtypes", default=",".join(DTYPES), help="names of dtypes; 64-bit ones too")
    parser.add_argument("--missing", action="store_true", help="ask what the figures lack")
    parser.add_argument("--page", action="store_true", help="write the page alone")
    asked = parser.parse_args()
    if asked.child:
        child()
        return 0
    wanted = [*jobs(tuple(asked.dtypes.split(",")))]
    if asked.only is not None:
        for job in wanted:
            if asked.only in job[0]:
                print(*job, json.dumps(walk([job], {})), flush=True)
        return 0
    found = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    if not asked.page:
        order = {name: i for i, name in enumerate(asked.dtypes.split(","))}
        wanted.sort(key=lambda job: order[job[1]])
        walk([job for job in wanted if not (asked.missing and " ".join(job) in found)], found, kept)
    PAGE.write_text(page(found))
    print(Counter(row["state"] for row in found.values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
