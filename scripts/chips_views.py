"""Compile the programs of views for a TPU that is not here, and print bytes against the ideal.

It needs libtpu, which `jax[tpu]` brings.  Each program is compiled in a process of its own, for at most 60 seconds.
With a view, a program and a dtype it prints the figures of that one, as JSON.
"""

import json
import multiprocessing
import os
import re
import sys
import time
from math import prod
from typing import Any

ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
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
CONTEXT = multiprocessing.get_context("forkserver")
DTYPES = ("float32", "bfloat16")
KINDS = ("read", "write", "adjoint")


def measure(name: str, kind: str, dtype: str, usual: bool = False) -> dict:
    import jax
    import numpy as np
    from jax.experimental import topologies

    from xgrad.platforms import tracing_for
    from xgrad.views import platforms
    from xgrad.views.chain import ViewChain

    topology = topologies.get_topology_desc(platform="tpu", topology_name="v5e:1x1", chips_per_host_bounds=(1, 1, 1))
    where = jax.sharding.SingleDeviceSharding(topology.devices[0])
    jax.config.update("jax_enable_compilation_cache", False)
    shape, *view = VIEWS[name]
    chain = ViewChain.root(shape, np.dtype(jax.numpy.dtype(dtype))).view(*view)
    root, part, starts = (shape, dtype), (chain.shape, dtype), [((), "int32")] * len(chain.start_values)
    given = {"read": [root], "write": [root, part], "adjoint": [part]}[kind] + starts
    function = {"read": "trace_replay", "write": "trace_write", "adjoint": "trace_adjoint"}[kind]
    if usual:
        platforms.FORMS.clear()
    with tracing_for("tpu"):
        program = jax.jit(
            getattr(chain.program, function),
            donate_argnums=(0,) if kind == "write" else (),
            compiler_options=platforms.forms().options if kind == "read" else None,
        )
        lowered = program.lower(*(jax.ShapeDtypeStruct(s, jax.numpy.dtype(d), sharding=where) for s, d in given))
        began = time.process_time()
        made = lowered.compile()
        seconds = time.process_time() - began
    size = jax.numpy.dtype(dtype).itemsize
    moved = 2 * prod(chain.shape) if kind != "adjoint" else prod(chain.shape) + prod(shape)
    text = made.as_text()
    return {
        "bytes": int(made.cost_analysis()["bytes accessed"]),
        "ideal": moved * size,
        "cycles": sum(map(int, re.findall(r'estimated_cycles":"(\d+)"', text))),
        "seconds": round(seconds, 1),
        "aliased": made.memory_analysis().alias_size_in_bytes > 0,
    }


def _tell(end: Any, *arguments: Any) -> None:
    try:
        end.send(measure(*arguments))
    except Exception as error:
        end.send({"error": str(error).splitlines()[0][:60]})


def child(*arguments: Any) -> dict:
    """Return the figures of one program, or why there are none.  The compiler may end the process."""
    here, there = CONTEXT.Pipe()
    process = CONTEXT.Process(target=_tell, args=(there, *arguments))
    process.start()
    there.close()
    try:
        return here.recv() if here.poll(SECONDS) else {"error": f"over {SECONDS} s"}
    except EOFError:
        return {"error": "ends the compiler"}
    finally:
        process.kill()
        process.join()


def shown(found: dict) -> str:
    return found.get("error") or f"{found['bytes'] / 1e6:.3g} MB, {found['seconds']} s"


def main() -> None:
    print("| view | program | dtype | ideal | before | now |\n| --- | --- | --- | ---: | ---: | ---: |")
    for name in VIEWS:
        for kind in KINDS:
            if kind == "write" and name.startswith(("unfold", "as_strided (1024")):
                continue  # they overlap
            for dtype in DTYPES:
                before, now = (child(name, kind, dtype, usual) for usual in (True, False))
                ideal = next((f"{f['ideal'] / 1e6:.3g} MB" for f in (now, before) if "ideal" in f), "")
                print(f"| `{name}` | {kind} | {dtype} | {ideal} | {shown(before)} | {shown(now)} |", flush=True)


if __name__ == "__main__":
    os.environ.update(ENVIRONMENT)
    if len(sys.argv) == 4:
        print(json.dumps(measure(*sys.argv[1:])))
    else:
        CONTEXT.set_forkserver_preload(["jax", "xgrad"])
        main()
