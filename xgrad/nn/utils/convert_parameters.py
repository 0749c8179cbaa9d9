"""parameters_to_vector, vector_to_parameters: join parameters into one vector, and copy a vector into parameters.

PyTorch: torch/nn/utils/convert_parameters.py.
"""

from collections.abc import Iterable, Iterator

from ...dispatch.tables import FUNCTIONS
from ...tensor import Tensor


def _on_one_device(parameters: Iterable[Tensor]) -> Iterator[Tensor]:
    """Yield the parameters.  Raises `TypeError` when one is on another device than the first."""
    place = None
    for parameter in parameters:
        place = parameter.device if place is None else place
        if parameter.device != place:
            raise TypeError("Found two parameters on different devices, this is currently not supported.")
        yield parameter


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """Return all elements of the parameters as one vector, which has a gradient to each of them.

    Raises `TypeError` for parameters on different devices.

    >>> import xgrad
    >>> xgrad.nn.utils.parameters_to_vector(xgrad.nn.Linear(2, 3).parameters()).shape
    xgrad.Size([9])
    """
    return FUNCTIONS[""]["cat"]([parameter.reshape(-1) for parameter in _on_one_device(parameters)])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Give each parameter its part of a vector as new values, in order, outside of any graph.

    The parameters do not share the vector's storage as they do in PyTorch.  Raises `TypeError` if `vec` is not a
    tensor, and for parameters on different devices.

    >>> import xgrad
    >>> w = xgrad.nn.Parameter(xgrad.ones(2, 1))
    >>> xgrad.nn.utils.vector_to_parameters(xgrad.tensor([1.0, 2.0]), [w])
    >>> w.tolist()
    [[1.0], [2.0]]
    """
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected xgrad.Tensor, but got: {type(vec).__module__}.{type(vec).__qualname__}")
    start = 0
    for parameter in _on_one_device(parameters):
        stop = start + parameter.numel()
        parameter.data = vec.detach()[start:stop].reshape(parameter.shape).clone()
        start = stop
