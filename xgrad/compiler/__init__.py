"""xgrad.compile: compiles a whole step (forward, backward, in-place updates, optimizer, random numbers) to one program.

reached_tensors.py   one run on tracers, and the tensors, arrays and generators from outside that it uses
overlay.py           the attributes of tensors that only the tracing thread sees
guards/              tests that a later call finds what the trace found
trace_lock.py        one thread traces at a time
program.py           the traced equations as a forward and a backward program
effects.py           which tensors the function returns or changes; makes the tensors of each call
backward_node.py     the node on results that require grad
trace_function.py    all of this in order
traced.py            the result of a trace
results.py           the pytree that holds a program's results before its call returns
compiled_program.py  one compiled program, and how a call runs it
stepping.py          `scheduler.step()` calls, repeated in Python after a run of a program
generated_run.py     one generated function that runs a program without effects
shardings.py         in_shardings, out_shardings, and the shardings of written storages and gradients
buckets.py           arguments whose sizes vary
function.py          `CompiledFunction`, which `xgrad.compile` returns
verify.py            verify=True: comparison of each call with an eager run
dry_run.py           copies of tensors for that run, and Python containers restored after it
messages.py          the texts of errors
torch_names.py       torch.compiler's functions, most without effect
"""

from .function import CompiledFunction, Metrics, compile
from .torch_names import (
    allow_in_graph,
    assume_constant_result,
    cudagraph_mark_step_begin,
    disable,
    is_compiling,
    is_dynamo_compiling,
    is_exporting,
    reset,
    set_stance,
)

__all__ = [
    "CompiledFunction", "Metrics", "allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin",
    "disable", "is_compiling", "is_dynamo_compiling", "is_exporting", "reset", "set_stance",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
