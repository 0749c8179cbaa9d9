"""spectral_norm: divides a weight by its spectral norm before forward (PyTorch: torch/nn/utils/spectral_norm.py).

A hook of the module does it; `parametrizations.spectral_norm` is the newer form.  Two buffers approximate the first
singular vectors, u and v: each forward in training improves them by `n_power_iterations` steps of the power method, and
the weight is divided by u · W v.
"""

from typing import Any

from ...autograd.grad_mode import no_grad
from ...dispatch.tables import FUNCTIONS
from ...tensor import Tensor
from ..module import Module
from ..parameter import Parameter
from .weight_norm import require_initialized

_normalize = FUNCTIONS["nn.functional"]["normalize"]
_TRANSPOSED = ("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d")


def output_dim(module: Any, dim: int | None) -> int:
    """Return the weight's dimension of outputs: `dim`, or 1 for a transposed convolution and 0 for others."""
    if dim is not None:
        return dim
    return int(any(cls.__name__ in _TRANSPOSED for cls in type(module).__mro__))


def as_matrix(weight: Tensor, dim: int) -> Tensor:
    """Return the weight as a matrix with a row for each output."""
    if dim != 0:
        weight = weight.permute(dim, *(d for d in range(weight.ndim) if d != dim))
    return weight.flatten(1) if weight.ndim > 1 else weight.unsqueeze(1)


class SpectralNorm:
    """The hook that divides the parameter `name`_orig by its spectral norm, with the buffers `name`_u and `name`_v."""

    dim: int
    eps: float
    n_power_iterations: int
    name: str

    _version: int = 1

    def __init__(self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        if n_power_iterations <= 0:
            raise ValueError(
                f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}"
            )
        self.name, self.dim, self.n_power_iterations, self.eps = name, dim, n_power_iterations, eps

    def reshape_weight_to_matrix(self, weight: Tensor) -> Tensor:
        """Return the weight as a matrix with a row for each output."""
        return as_matrix(weight, self.dim)

    def compute_weight(self, module: Module, do_power_iteration: bool) -> Tensor:
        """Return the divided weight, after steps of the power method if it is asked."""
        weight, u, v = (getattr(module, self.name + end) for end in ("_orig", "_u", "_v"))
        matrix = as_matrix(weight, self.dim)
        if do_power_iteration:
            with no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(_normalize(matrix.t().mv(u), dim=0, eps=self.eps))
                    u.copy_(_normalize(matrix.mv(v), dim=0, eps=self.eps))
                u, v = u.clone(), v.clone()  # a second forward changes the buffers before this one's backward
        return weight / u.dot(matrix.mv(v))

    def remove(self, module: Module) -> None:
        """Make the divided weight a parameter."""
        with no_grad():
            weight = self.compute_weight(module, do_power_iteration=False)
        for end in ("", "_u", "_v", "_orig"):
            delattr(module, self.name + end)
        module.register_parameter(self.name, Parameter(weight.detach()))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, do_power_iteration=module.training))

    @staticmethod
    def apply(module: Module, name: str, n_power_iterations: int, dim: int, eps: float) -> "SpectralNorm":
        """Rename the parameter, add the buffers, and register the hooks."""
        if any(isinstance(hook, SpectralNorm) and hook.name == name for hook in module._forward_pre_hooks.values()):
            raise RuntimeError(f"Cannot register two spectral_norm hooks on the same parameter {name}")
        hook = SpectralNorm(name, n_power_iterations, dim, eps)
        weight = module._parameters[name]
        if weight is None:
            raise ValueError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
        require_initialized(module, weight, "SpectralNorm")
        with no_grad():
            u, v = (_normalize(weight.new_empty(n).normal_(0, 1), dim=0, eps=eps) for n in as_matrix(weight, dim).shape)
        delattr(module, name)
        module.register_parameter(f"{name}_orig", weight)
        setattr(module, name, weight.data)
        module.register_buffer(f"{name}_u", u)
        module.register_buffer(f"{name}_v", v)
        module.register_forward_pre_hook(hook)
        module._register_state_dict_hook(SpectralNormStateDictHook(hook))
        return hook


class SpectralNormStateDictHook:
    """Notes the version in a state's metadata, as PyTorch does, which refuses states without v otherwise."""

    def __init__(self, fn: SpectralNorm) -> None:
        self.fn = fn

    def __call__(self, module: Module, state_dict: Any, prefix: str, local_metadata: dict[str, Any]) -> None:
        versions = local_metadata.setdefault("spectral_norm", {})
        key = f"{self.fn.name}.version"
        if key in versions:
            raise RuntimeError(f"Unexpected key in metadata['spectral_norm']: {key}")
        versions[key] = self.fn._version


def spectral_norm(
    module: Any, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Any:
    """Divide a weight by its spectral norm before each forward; return the module.

    The parameter becomes `name`_orig; the buffers `name`_u and `name`_v improve in training, by `n_power_iterations`
    steps a forward.  `dim` is the weight's dimension of outputs.  Raises `RuntimeError` if it is divided already.

    >>> from xgrad import nn
    >>> list(nn.utils.spectral_norm(nn.Linear(2, 3)).state_dict())
    ['bias', 'weight_orig', 'weight_u', 'weight_v']
    """
    SpectralNorm.apply(module, name, n_power_iterations, output_dim(module, dim), eps)
    return module


def remove_spectral_norm(module: Any, name: str = "weight") -> Any:
    """Make the divided weight a parameter; return the module.  Raises `ValueError` if it is not divided."""
    for number, hook in module._forward_pre_hooks.items():
        if isinstance(hook, SpectralNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[number]
            break
    else:
        raise ValueError(f"spectral_norm of '{name}' not found in {module}")
    for number, hook in module._state_dict_hooks.items():
        if isinstance(hook, SpectralNormStateDictHook) and hook.fn.name == name:
            del module._state_dict_hooks[number]
            break
    return module
