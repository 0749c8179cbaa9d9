"""Runs the command line `python -m xgrad COMMAND`; each command is a module with `add_arguments` and `run`.

Exit codes: 0: the command succeeded; 1: the command ran and found something wrong; 2: the command line was wrong, and
the usage was printed; 130: the user interrupted it.
"""

import argparse
import importlib
from collections.abc import Sequence

_COMMANDS = {
    "doctor": "what is installed, which devices JAX sees, and whether a first gradient is right",
    "demo": "train a recurrent classifier that writes its states in place, and compare both tracking paths",
    "compare": "run a function of yours under both tracking paths",
    "chip": "compile a function or a step for a chip that is not here, and say what its compiler says",
    "conform": "compare a device with the CPU in float64: every operator, views, memory, random numbers, execution",
    "bench": "what xgrad costs, as ratios: against bare jitted kernels, eager jax.numpy and jax.jit",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` (default: the process's arguments) names, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m xgrad", description="xgrad: PyTorch's eager autograd on JAX arrays."
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, purpose in _COMMANDS.items():
        module = importlib.import_module(f".{name}", __name__)
        own = commands.add_parser(name, help=purpose, description=module.__doc__)
        module.add_arguments(own)
        own.set_defaults(run=module.run, parser=own)
    arguments = parser.parse_args(argv)
    return arguments.run(arguments)
