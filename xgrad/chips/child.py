"""The child process of `xgrad.target`, which runs the compiler of a chip that is not in this machine.

The process reads programs from a socket, and writes what the compiler says of each.  It is started as a file,
`python -P child.py SOCKET`, and imports JAX alone: no code of the user's, none of xgrad's.
A compiler that finds itself in a state that it did not foresee ends the process; xgrad then starts another one.

Invariant: it ends when the process that started it does, in the middle of a program too.
"""

import os
import pickle
import select
import sys
import threading
import time
from math import prod
from multiprocessing.connection import Connection
from typing import Any


def topology_of(platform: str, kind: str, sizes: tuple[int, ...], config: str | None) -> Any:
    """Return the topology, whose devices can be compiled for and do nothing else."""
    from jax.experimental import topologies  # with JAX's environment set

    if platform != "tpu":
        return topologies.get_topology_desc(kind, platform, topology="1x1x1", target_config=config)
    bounds = (1, 1, 1) if prod(sizes) == 1 else (2, 2, 1)
    name = f"{kind}:{'x'.join(map(str, sizes))}"
    more = {"chip_config_name": "megacore"} if kind == "v4" else {}  # both cores are one device, as JAX runs it
    return topologies.get_topology_desc(name, "tpu", chips_per_host_bounds=bounds, **more)


def compiled(request: dict[str, Any], topology: Any) -> dict[str, Any]:
    """Compile a program, and return what the compiler says of it, as numbers and text."""
    import jax  # with its environment set
    from jax import export
    from jax.experimental import mesh_utils
    from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

    exported = export.Exported(**request["exported"])
    if request["mesh"] is None:
        ins = [SingleDeviceSharding(topology.devices[0])] * len(exported.in_avals)
        outs = None if ins else SingleDeviceSharding(topology.devices[0])  # else it would be compiled for the CPU
    else:
        sizes, names = request["mesh"]
        laid = mesh_utils.create_device_mesh(sizes, list(topology.devices), allow_split_physical_axes=True)
        mesh = Mesh(laid, names)
        ins = [NamedSharding(mesh, spec or PartitionSpec()) for spec in request["specs"]]
        outs = request["results"]
        outs = outs and [None if spec is None else NamedSharding(mesh, spec) for spec in outs]

    def program(*operands: Any) -> Any:
        return exported.call(*operands)

    structs = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s) for a, s in zip(exported.in_avals, ins)]
    jitted = jax.jit(
        program,
        donate_argnums=request["donate"],
        compiler_options=request["options"],
        out_shardings=outs,
    )
    start = time.perf_counter()
    executable = jitted.lower(*structs).compile()
    seconds = time.perf_counter() - start
    cost = asked(executable.cost_analysis) or {}
    cost = cost[0] if isinstance(cost, list) else cost
    memory = asked(executable.memory_analysis)
    return {
        "state": "compiles",
        "seconds": seconds,
        "hlo": (executable.as_text() or "").replace("jit(program)/call_exported/", ""),
        "cost": {name: value for name, value in cost.items() if "{" not in name},
        "memory": {name: int(getattr(memory, name + "_size_in_bytes")) for name in MEMORY} if memory else {},
    }


MEMORY = ("argument", "output", "temp", "alias", "generated_code")


def asked(question: Any) -> Any:
    """Return the answer; None if this compiler has none."""
    try:
        return question()
    except (NotImplementedError, RuntimeError):
        return None


def answer(request: dict[str, Any], known: dict[Any, Any]) -> dict[str, Any]:
    """Return what the compiler says of a program, or its error."""
    try:
        place = request["topology"]
        if place not in known:
            known[place] = topology_of(*place)
        return compiled(request, known[place])
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        fits = "RESOURCE_EXHAUSTED" not in said
        return {"state": "refused" if fits else "does not fit", "said": said, "seconds": 0.0}


def _end_with(socket: int) -> None:
    """End this process when the other end of the socket is gone."""
    watched = select.poll()
    watched.register(socket, select.POLLRDHUP)
    watched.poll()
    os._exit(0)


def main(socket: int) -> None:
    """Answer requests until the process that sends them ends."""
    threading.Thread(target=_end_with, args=(socket,), daemon=True).start()
    import jax  # with its environment set

    jax.config.update("jax_enable_x64", True)  # shapes and dtypes come with each program
    channel, known = Connection(socket), {}
    channel.send({"state": "started"})
    while True:
        channel.send(answer(pickle.loads(channel.recv_bytes()), known))


if __name__ == "__main__":
    main(int(sys.argv[1]))
