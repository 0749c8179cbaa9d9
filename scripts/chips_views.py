"""Compile the programs of views for a TPU that is not here, and print bytes against the ideal.

It needs libtpu, which `jax[tpu]` brings.  Each program has at most 60 seconds.
With a view, a program and a dtype it prints the figures of that one, as JSON.
"""

import json
import re
import sys
from math import prod
from unittest.mock import patch

import jax
import numpy as np

import xgrad
from xgrad.base.platforms import tracing_for
from xgrad.views import platforms
from xgrad.views.chain import ViewChain

SQUARE, FLAT, CACHE = (1024, 1024), (1_000_000,), (8, 8, 2048, 64)
VIEWS = {
    "row": (SQUARE, "select", 0, 5),
    "column": (SQUARE, "select", 1, 5),
    "block": (SQUARE, "slice", 0, 5, 517, 1),
    "every second row": (SQUARE, "slice", 0, 0, 1024, 2),
    "every second column": (SQUARE, "slice", 1, 0, 1024, 2),
    "every seventh of 1e6": (FLAT, "slice", 0, 0, 1_000_000, 7),
    "c[:, :, 17]": (CACHE, "select", 2, 17),
    "t": (SQUARE, "t"),
    "diagonal": (SQUARE, "diagonal", 0, 0, 1),
    "unfold(0, 1024, 512)": (FLAT, "unfold", 0, 1024, 512),
    "unfold(1, 8, 4)": (SQUARE, "unfold", 1, 8, 4),
    "as_strided (1024, 64)/(16, 1)": (FLAT, "as_strided", (1024, 64), (16, 1), 0),
    "as_strided (1000, 100)/(601, 3)": (FLAT, "as_strided", (1000, 100), (601, 3), 5),
}
SECONDS = 60
DTYPES = ("float32", "bfloat16")
KINDS = ("read", "write", "adjoint")


def measure(name: str, kind: str, dtype: str, usual: bool = False) -> dict:
    """Return the figures of one program, or why there are none; `usual`: of the form that a CPU has."""
    shape, *view = VIEWS[name]
    chain = ViewChain.root(shape, np.dtype(jax.numpy.dtype(dtype))).view(*view)
    root, part, starts = (shape, dtype), (chain.shape, dtype), [((), "int32")] * len(chain.start_values)
    given = {"read": [root], "write": [root, part], "adjoint": [part]}[kind] + starts
    function = {"read": "trace_replay", "write": "trace_write", "adjoint": "trace_adjoint"}[kind]
    jax.clear_caches()  # JAX keeps a trace by its platform, and not by its form
    with patch.dict(platforms.FORMS, clear=usual):
        with tracing_for("tpu"):
            options = platforms.forms().options if kind == "read" else None
        answer = xgrad.target("tpu:v5e", limit=SECONDS).ask(
            getattr(chain.program, function),
            *(jax.ShapeDtypeStruct(s, jax.numpy.dtype(d)) for s, d in given),
            donate=(0,) if kind == "write" else (),
            options=options,
        )
    if answer.state != "compiles":
        return {"error": answer.state}
    moved = 2 * prod(chain.shape) if kind != "adjoint" else prod(chain.shape) + prod(shape)
    return {
        "bytes": int(answer.bytes_accessed),
        "ideal": moved * jax.numpy.dtype(dtype).itemsize,
        "cycles": sum(map(int, re.findall(r'estimated_cycles":"(\d+)"', answer.hlo))),
        "seconds": round(answer.seconds, 1),
        "aliased": answer.memory["alias"] > 0,
    }


def shown(found: dict) -> str:
    return found.get("error") or f"{found['bytes'] / 1e6:.3g} MB, {found['seconds']} s"


def main() -> None:
    print("| view | program | dtype | ideal | before | now |\n| --- | --- | --- | ---: | ---: | ---: |")
    for name in VIEWS:
        for kind in KINDS:
            if kind == "write" and name.startswith(("unfold", "as_strided (1024")):
                continue  # they overlap
            for dtype in DTYPES:
                before, now = (measure(name, kind, dtype, usual) for usual in (True, False))
                ideal = next((f"{f['ideal'] / 1e6:.3g} MB" for f in (now, before) if "ideal" in f), "")
                print(f"| `{name}` | {kind} | {dtype} | {ideal} | {shown(before)} | {shown(now)} |", flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 4:
        print(json.dumps(measure(*sys.argv[1:])))
    else:
        main()
