"""LazyModuleMixin: gives a module's parameters their shapes at the first batch (PyTorch: torch/nn/modules/lazy.py)."""

from typing import Any

from ...autograd.grad_mode import no_grad
from ...config import state
from ...tensor import Tensor
from ...views.storage import Tracer
from ..module import Module
from ..parameter import UninitializedParameter, is_lazy


class LazyModuleMixin(Module):
    """Mixin, before a module's own class, for a module whose parameters have no shape yet.

    The first forward calls `initialize_parameters` with its arguments, which materializes them; then the module is of
    the class `cls_to_become`.  Optimizers may be made before: a parameter stays the same object.  A state with shapes
    can be loaded before, one without only into a lazy module.

    >>> import xgrad
    >>> layer = xgrad.nn.LazyLinear(2)
    >>> layer.weight
    <UninitializedParameter>
    >>> layer(xgrad.ones(4, 3)).shape, layer
    (xgrad.Size([4, 2]), Linear(in_features=3, out_features=2, bias=True))
    """

    cls_to_become: Any = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = self.register_forward_pre_hook(self._infer_parameters, with_kwargs=True)

    def _lazy_load_hook(self, state_dict: dict[str, Any], prefix: str, *about: Any) -> None:
        """Materialize what the state has with a shape."""
        for name, value in (*self._parameters.items(), *self._buffers.items()):
            given = state_dict.get(prefix + name)
            if is_lazy(value) and given is not None and not is_lazy(given):
                with no_grad():
                    value.materialize(given.shape)

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Materialize the parameters for forward's arguments, and draw their values; subclasses define it."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def has_uninitialized_params(self) -> bool:
        """Return True while a parameter or buffer has no shape."""
        return any(is_lazy(value) for value in (*self._parameters.values(), *self._buffers.values()))

    def _infer_parameters(self, module: Any, args: Any, kwargs: Any = None) -> None:
        if state.trace is not None or any(isinstance(a, Tensor) and isinstance(a._held(), Tracer) for a in args):
            raise RuntimeError(
                f"{self._get_name()} has no parameters yet, and would get the values of one program: "
                "call it with a batch before you compile it"
            )
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise RuntimeError(f"module {self._get_name()} has not been fully initialized")
        for hook in (module._initialize_hook, module._load_hook):
            hook.remove()
        del module._initialize_hook, module._load_hook
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become

    def _replicate_for_data_parallel(self) -> None:
        raise RuntimeError(
            "Modules with uninitialized parameters can't be used with `DataParallel`. Run a dummy forward pass to "
            "correctly initialize the modules"
        )


def uninitialized(module: Module, device: Any, dtype: Any, **wanted: bool) -> None:
    """Give a module parameters without a shape, or None where it wants none."""
    for name, has in wanted.items():
        setattr(module, name, UninitializedParameter(device=device, dtype=dtype) if has else None)
