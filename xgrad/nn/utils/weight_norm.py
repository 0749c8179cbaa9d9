"""weight_norm: computes a weight from its magnitude and direction, by a hook (PyTorch: torch/nn/utils/weight_norm.py).

`parametrizations.weight_norm` is the newer form; models and checkpoints of speech use this one.
"""

import warnings
from typing import Any

from ...dispatch.tables import FUNCTIONS
from ...tensor import Tensor
from ..module import Module
from ..parameter import Parameter


def normalized(v: Tensor, g: Tensor, dim: int) -> Tensor:
    """Return v · g / |v|, with the norm over all dimensions but `dim`; over all for -1 (torch._weight_norm)."""
    return v * (g / FUNCTIONS[""]["norm_except_dim"](v, 2, dim))


def require_initialized(module: Module, weight: Any, name: str) -> None:
    """Raise `ValueError` for a parameter of a lazy module that has no values yet."""
    if type(weight).__name__ == "UninitializedParameter":
        raise ValueError(
            f"The module passed to `{name}` can't have uninitialized parameters. Make sure to run the dummy forward "
            f"before applying it to {type(module).__name__}"
        )


class WeightNorm:
    """The hook that computes the weight `name` from its direction (name_v) and its magnitude (name_g)."""

    dim: Any
    name: str

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, -1 if dim is None else dim

    def compute_weight(self, module: Module) -> Tensor:
        """Return the weight."""
        return normalized(getattr(module, f"{self.name}_v"), getattr(module, f"{self.name}_g"), self.dim)

    @staticmethod
    def apply(module: Module, name: str, dim: int | None) -> "WeightNorm":
        """Replace the parameter by two, and register the hook."""
        warnings.warn(
            "`nn.utils.weight_norm` is deprecated in favor of `nn.utils.parametrizations.weight_norm`.",
            FutureWarning,
            stacklevel=3,
        )
        if any(isinstance(hook, WeightNorm) and hook.name == name for hook in module._forward_pre_hooks.values()):
            raise RuntimeError(f"Cannot register two weight_norm hooks on the same parameter {name}")
        hook = WeightNorm(name, dim)
        weight = getattr(module, name)
        require_initialized(module, weight, "WeightNorm")
        del module._parameters[name]
        norm = FUNCTIONS[""]["norm_except_dim"](weight.detach(), 2, hook.dim)
        module.register_parameter(f"{name}_g", Parameter(norm))
        module.register_parameter(f"{name}_v", Parameter(weight.data))
        setattr(module, name, hook.compute_weight(module))
        module.register_forward_pre_hook(hook)
        return hook

    def remove(self, module: Module) -> None:
        """Make the weight a parameter again."""
        weight = self.compute_weight(module)
        delattr(module, self.name)
        del module._parameters[f"{self.name}_g"], module._parameters[f"{self.name}_v"]
        setattr(module, self.name, Parameter(weight.data))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """Split a weight into magnitude (`name`_g) and direction (`name`_v), two parameters; return the module.

    The norm is over all dimensions but `dim`, or over all for None.  The weight is computed before each forward.
    Warns that `parametrizations.weight_norm` is the newer form.  Raises `RuntimeError` if it is split already.
    """
    WeightNorm.apply(module, name, dim)
    return module


def remove_weight_norm(module: Any, name: str = "weight") -> Any:
    """Make the product of magnitude and direction a parameter again; return the module.

    Raises `ValueError` if the weight is not split.
    """
    for number, hook in module._forward_pre_hooks.items():
        if isinstance(hook, WeightNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[number]
            return module
    raise ValueError(f"weight_norm of '{name}' not found in {module}")
