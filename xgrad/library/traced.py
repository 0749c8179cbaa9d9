"""Runs a user-registered operator in a trace of xgrad.compile or JAX, by tracing its kernel or calling it on the host.

A kernel that is made of operators is traced: it becomes part of the program, as fast as any code.  One that reads
values (NumPy, `if x.sum() > 0`) cannot be; then the program calls it back on the host when it runs
(`jax.pure_callback`), with results of the shapes that the fake kernel gives.

Invariant: a kernel that turned out to read values leaves no trace: what it wrote before is put back.
"""

from typing import Any

import jax
import numpy as np

from ..config import Unrecorded, state
from ..errors import TracedValueError
from ..tensor import Tensor, from_array
from .calls import Call


def compute_traced(operator: Any, values: list[Any], named: dict[str, Any]) -> Any:
    """Run an operator on tensors without values: its kernel as part of the program, or called back from it."""
    trace = state.trace
    refused = None if trace is None else trace.refused
    mutated = operator.mutated(values, named)
    before = [t._read() for t in mutated]
    try:
        result = operator.computed(values, named)
        if trace is None or trace.refused is refused:
            return result
        error: Exception = trace.refused  # the kernel caught it
    except (TracedValueError, jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError) as reading:
        error = reading
    if operator.fake is None and not operator.returns_written:
        unknown = NotImplementedError(
            f"{operator} reads the values of its arguments, which are not known while they are traced, and there was "
            "no fake impl registered for it: with register_fake(fn), where fn returns empty tensors of the results' "
            "shapes and dtypes, the program calls the operator on the host"
        )
        if trace is not None:
            trace.refused = unknown
        raise unknown from error
    if trace is not None:
        trace.refused = refused
    for tensor, array in zip(mutated, before, strict=True):
        if tensor._read() is not array:
            tensor.copy_(from_array(array))
    return _called_back(operator, values, named, mutated)


def _called_back(operator: Any, values: list[Any], named: dict[str, Any], mutated: list[Tensor]) -> Any:
    if state.trace is not None:
        state.trace.calls_back = True
    call = Call(operator, values, named)
    tensors = call.tensors or []
    call.tensors = None
    faked = operator.faked(values, named)
    results = call.split(faked)
    new = [t for t in results if not any(t is m for m in mutated)]
    shapes = [jax.ShapeDtypeStruct(t._read().shape, t._read().dtype) for t in new]
    n = len(shapes)
    shapes += [jax.ShapeDtypeStruct(t._read().shape, t._read().dtype) for t in mutated]
    if not shapes:
        raise NotImplementedError(
            f"{operator} reads values, returns no tensor and writes none: a program has no use for it, and would leave "
            "it out. Call it outside of the compiled function."
        )
    kind = operator.device_kind(values, named)
    places = [next(i for i, t in enumerate(tensors) if t is m) for m in mutated]

    def host(*arrays: Any) -> list[np.ndarray]:
        return _on_host(call, kind, arrays, places, shapes)

    arrays = jax.pure_callback(host, shapes, *[t._read() for t in tensors], vmap_method="sequential")
    for tensor, array in zip(mutated, arrays[n:], strict=True):
        tensor.copy_(from_array(array))
    made = {id(t): from_array(a) for t, a in zip(new, arrays, strict=False)}
    return call.filled([made.get(id(t), t) for t in results])


def _on_host(call: Any, kind: str | None, arrays: Any, places: list[int], shapes: list[Any]) -> list[np.ndarray]:
    """Run the kernel of a type of devices on values; return its results and what it wrote as NumPy arrays."""
    operator = call.operator
    try:
        place = jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX was configured for other platforms only
        place = None
    with Unrecorded():
        given = [from_array(jax.device_put(np.array(a), place)) for a in arrays]
        values, named = call.arguments(given)
        result = operator.computed(values, named, kind)
        again = type(call)(operator, [], {})
        written = [given[i] for i in places]
        made = [t for t in again.split(result) if not any(t is w for w in written)]
        found = [np.asarray(t._export()) for t in (*made, *written)]
    for i, (array, shape) in enumerate(zip(found, shapes, strict=False)):
        if array.shape != shape.shape or array.dtype != shape.dtype:
            raise RuntimeError(
                f"{operator}: its fake impl says that result {i} is {shape.dtype}{list(shape.shape)}, but its kernel "
                f"returned {array.dtype}{list(array.shape)}"
            )
    if len(found) != len(shapes):
        raise RuntimeError(f"{operator}: its fake impl returns {len(shapes)} tensors, but its kernel {len(found)}")
    return found
