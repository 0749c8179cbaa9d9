"""A compiler's process that compiles for fake CPU devices: the real one's code, without a chip's compiler.

For "tpu:v2" it ends like a compiler whose check fails, for "tpu:v3" it takes for ever.
"""

import os
import sys
import time
from math import prod
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).parents[2] / "xgrad" / "chips"))
import child
import jax


def topology_of(platform, kind, sizes, config):
    if kind == "v2":
        print("some words before", file=sys.stderr)
        print("F0101 12:00:00.0 1 layout.cc:12] Check failed: rank == 2", file=sys.stderr)
        sys.stderr.flush()
        os.abort()
    while kind == "v3":
        time.sleep(1)
    return SimpleNamespace(devices=jax.devices()[: prod(sizes)])


def compiled(request, topology, real=child.compiled):
    request["exported"]["platforms"] = ("cpu",)
    (request["options"] or {}).pop("xla_max_cross_program_prefetches", None)  # a TPU's
    return real(request, topology)


child.topology_of, child.compiled = topology_of, compiled
if __name__ == "__main__":
    child.main(int(sys.argv[1]))
