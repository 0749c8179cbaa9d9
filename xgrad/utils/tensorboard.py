"""SummaryWriter: writes tensors to TensorBoard's event files, by the package tensorboardX (torch/utils/tensorboard)."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..base import dtypes
from ..tensor import Tensor

__all__: list[str] = []  # SummaryWriter is made at its first use, if tensorboardX is there

_MISSING = (
    "xgrad.utils.tensorboard needs tensorboardX, which writes the event files without TensorFlow: "
    "pip install tensorboardX"
)


def _host(value: Any) -> Any:
    """Return the value with NumPy arrays in the place of tensors; a number for a tensor of one."""
    if isinstance(value, Tensor):
        value = value.detach()
        if value.dim() == 0:
            return value.item()
        array = np.asarray(value._read())
        return array.astype(np.float32) if array.dtype in dtypes.FLOATS and array.dtype.itemsize < 4 else array
    if isinstance(value, dict):
        return {key: _host(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(_host(item) for item in value)
    return value


def _taking_tensors(method: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Any, *args: Any, **options: Any) -> Any:
        return method(self, *_host(args), **_host(options))

    call.__name__, call.__doc__ = method.__name__, method.__doc__
    return call


def _writer() -> type:
    try:
        import tensorboardX  # optional
    except ImportError as error:
        raise ImportError(_MISSING) from error
    base: Any = tensorboardX.SummaryWriter

    def add_graph(self: Any, model: Any, *args: Any, **options: Any) -> None:
        raise NotImplementedError(
            "add_graph() draws a graph of torch.jit, which xgrad has not: xgrad.viz draws the autograd graph"
        )

    methods = {name: _taking_tensors(getattr(base, name)) for name in dir(base) if name.startswith("add_")}
    doc = "tensorboardX's SummaryWriter, which takes xgrad's tensors where it takes arrays and numbers."
    return type("SummaryWriter", (base,), {**methods, "add_graph": add_graph, "__doc__": doc, "__module__": __name__})


def __getattr__(name: str) -> Any:
    if name != "SummaryWriter":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = _writer()
    return found


def __dir__() -> list[str]:
    return ["SummaryWriter"]
