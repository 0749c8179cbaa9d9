"""Print the table of docs/concepts/views.md: kinds of views on both tracking paths, by three platforms' compilers.

Each function writes a view and reads it again; compared are the view programs that its backward runs.  A TPU and a GPU
need their compilers (`pip install "jax[tpu]"`, `jax-cuda12-plugin`), and no chip.  Compile times are processor time.
With names, only these views.
"""

import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax

import xgrad
from xgrad.chips import answers
from xgrad.chips.process import compiler_of
from xgrad.comparison import compare, timing

SQUARE = (1024, 1024)
VIEWS = {
    "x[5]": lambda x: x[5],
    "x[0], x[1], ... x[7]": lambda x: [x[i] for i in range(8)],
    "x[:, 5]": lambda x: x[:, 5],
    "x[:, :512]": lambda x: x[:, :512],
    "x[:, ::2]": lambda x: x[:, ::2],
    "x.t()": lambda x: x.t(),
    "x[5:517].t()": lambda x: x[5:517].t(),
    "x.diagonal()": lambda x: x.diagonal(),
    "x.unfold(1, 8, 8)": lambda x: x.unfold(1, 8, 8),
    "x.view(32, 32, 1024)[:, 5]": lambda x: x.view(32, 32, 1024)[:, 5],
}
TARGETS = {"TPU v5e": "tpu:v5e", "GPU T4": "cuda:t4"}
ANSWERED = compare.answered


def written(view: Any, x: Any) -> Any:
    """Write a view and read it again, which is when the paths differ."""
    y = x.clone()
    parts = view(y)
    parts = parts if isinstance(parts, list) else [parts]
    for part in parts:
        part.mul_(2)
    return tuple(part.sin() for part in parts)


def processor_time(platform: str) -> float:
    """Return the seconds of processor time that the compiler of a platform has taken."""
    process = compiler_of(platform)._process
    if process is None:
        return 0.0
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def answered(target: Any, *question: Any, **how: Any) -> Any:
    answers._known.clear()  # else the other path's answer to the same program would be this one's, at no time
    before = processor_time(target._chip.platform)
    answer = ANSWERED(target, *question, **how)
    return replace(answer, seconds=processor_time(target._chip.platform) - before)


def cells(name: str, platform: str, costs: list[Any], programs: list[int]) -> str:
    """Return a row: pairs of replay and geometry, the better one in bold where they differ by a tenth."""

    def pair(show: str, *values: Any) -> str:
        if None in values:
            return "-"
        texts = [show.format(value) for value in values]
        low, high = sorted(values)
        if texts[0] == texts[1]:
            return texts[0]
        if high > 1.1 * low:
            texts[values.index(low)] = f"**{texts[values.index(low)]}**"
        return " / ".join(texts)

    same = len({(c.operations, c.bytes_accessed, c.temporary_bytes) for c in costs}) == 1
    seconds = [min(c.compile_seconds for c in costs)] * 2 if same else [c.compile_seconds for c in costs]
    found = [
        pair("{:d}", *programs), pair("{:d}", *[c.operations for c in costs]),
        pair("{:.1f}", *[c.bytes_accessed and c.bytes_accessed / 1e6 for c in costs]),
        pair("{:.1f}", *[c.temporary_bytes / 1e6 for c in costs]), pair("{:.2f}", *seconds),
    ]  # fmt: skip
    return f"| `{name}` | {platform} | {' | '.join(found)} |"


def main(names: list[str]) -> None:
    print("| view | platform | programs | operations | MB accessed | temporary MB | compile s |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for target in TARGETS.values():
        xgrad.target(target).ask(lambda x: x + 1, jax.ShapeDtypeStruct((2,), "float32"))  # it starts
    for name in names or VIEWS:
        function = partial(written, VIEWS[name])
        for platform, target in {"CPU": None, **TARGETS}.items():
            x = xgrad.ones(*SQUARE, requires_grad=True)
            found = xgrad.compare(function, x, target=target, timing=target is None, repeats=2)
            paths = list(found.paths.values())
            costs = [path.views if target is None else path.views_on_chip for path in paths]
            print(cells(name, platform, costs, [len(path.programs) for path in paths]), flush=True)


if __name__ == "__main__":
    with patch.object(timing, "clock", time.process_time), patch.object(compare, "answered", answered):
        main(sys.argv[1:])
