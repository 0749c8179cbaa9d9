"""DataParallel, data_parallel: call the given module and nothing else, so that PyTorch code runs unchanged.

A sharding of the batch (a `PartitionSpec`) uses several devices; one module serves all of them.  Without a
GPU PyTorch calls the module alone, too (torch/nn/parallel/data_parallel.py).
"""

from typing import Any

from .module import Module

__all__ = ["DataParallel", "data_parallel"]


class DataParallel(Module):
    """A module that calls another one, its `module`: to use several devices, give the batch a `PartitionSpec`."""

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0) -> None:
        super().__init__()
        self.module, self.device_ids, self.output_device, self.dim = module, [], output_device, dim

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Return the module's result."""
        return self.module(*inputs, **kwargs)


def data_parallel(
    module: Module, inputs: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
) -> Any:  # fmt: skip
    """Return the module's result; with `inputs=None` the module is called without inputs."""
    given = () if inputs is None else inputs if isinstance(inputs, tuple) else (inputs,)
    return module(*given, **(module_kwargs or {}))
