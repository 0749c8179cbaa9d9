"""Prunes modules: a hook multiplies parameters by masks before each forward (PyTorch: torch/nn/utils/prune.py).

    weight (Parameter)    becomes    weight_orig (Parameter) · weight_mask (buffer) = weight (a tensor)

A second method on the same parameter sees only what the first one left (all, if its PRUNING_TYPE is "global"), and the
two are one `PruningContainer`.
Masks depend on values: apply a method outside of compiled functions.  A pruned module runs inside of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from numbers import Integral, Real
from typing import Any

from ...base.missing import close_namespace as _close_namespace
from ...dispatch.tables import FUNCTIONS
from ...tensor import Tensor
from ..module import Module
from .convert_parameters import parameters_to_vector

_F = FUNCTIONS[""]


class BasePruningMethod(ABC):
    """A way to choose what is pruned: a subclass has `PRUNING_TYPE` and `compute_mask`, and is the hook.

    PRUNING_TYPE: on what a second application works: "unstructured", the elements that are left; "structured", the
    channels of `self.dim` that are left; "global", all.

    >>> import xgrad
    >>> from xgrad.nn.utils import prune
    >>> class Negative(prune.BasePruningMethod):
    ...     PRUNING_TYPE = "unstructured"
    ...     def compute_mask(self, t, default_mask):
    ...         return default_mask * (t >= 0)
    >>> layer = xgrad.nn.Linear(2, 1)
    >>> layer.weight.data = xgrad.tensor([[-1.0, 2.0]])
    >>> _ = Negative.apply(layer, "weight")
    >>> layer.weight
    tensor([[-0., 2.]], grad_fn=<MulBackward0>)
    """

    PRUNING_TYPE: str
    _tensor_name: Any = None

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """Return the mask, 1 for what is kept, of scores `t` and the mask so far; all have one shape."""

    def apply_mask(self, module: Module) -> Any:
        """Return the parameter times its mask.  Raises `AssertionError` for a method that was not applied."""
        self._require_applied(module, "")
        original = getattr(module, f"{self._tensor_name}_orig")
        return getattr(module, f"{self._tensor_name}_mask").to(dtype=original.dtype) * original

    def _require_applied(self, module: Module, before: str) -> None:
        if self._tensor_name is None:
            raise AssertionError(f"Module {module} has to be pruned{before}")

    @classmethod
    def apply(
        cls, module: Module, name: str, *args: Any, importance_scores: Any = None, **kwargs: Any
    ) -> "BasePruningMethod":
        """Prune a module's parameter by `cls(*args, **kwargs)`; return the method, or the container that it went to.

        importance_scores: of the parameter's shape; by default the parameter itself.  If the mask can't be computed,
        the module stays as it was.
        """
        method = cls(*args, **kwargs)
        method._tensor_name = name
        original = getattr(module, name)
        scores = original if importance_scores is None else importance_scores
        _same_shape(scores, original, f"parameter {name} of {module}")
        hooks = [key for key, hook in module._forward_pre_hooks.items() if _prunes(hook, name)]
        if len(hooks) > 1:
            raise AssertionError(
                f"Avoid adding multiple pruning hooks to the same tensor {name} of module {module}. "
                "Use a PruningContainer."
            )
        found: Any = method
        before: Any = None
        if hooks:
            before = module._forward_pre_hooks.pop(hooks[0])
            found = before if isinstance(before, PruningContainer) else PruningContainer(before)
            found.add_pruning_method(method)
        if not hooks:
            del module._parameters[name]
            module.register_parameter(f"{name}_orig", original)
            mask = _F["ones_like"](original)
        else:
            mask = getattr(module, f"{name}_mask").detach().clone()
        try:
            module.register_buffer(f"{name}_mask", found.compute_mask(scores, default_mask=mask))
            setattr(module, name, found.apply_mask(module))
            module.register_forward_pre_hook(found)
        except Exception:
            if before is not None:  # PyTorch would leave the parameter without its hook
                if found is before:
                    before._pruning_methods = before._pruning_methods[:-1]
                module.register_forward_pre_hook(before)
            else:
                module._buffers.pop(f"{name}_mask", None)
                module.__dict__.pop(name, None)
                del module._parameters[f"{name}_orig"]
                module.register_parameter(name, original)
            raise
        return found

    def prune(self, t: Any, default_mask: Any = None, importance_scores: Any = None) -> Any:
        """Return a tensor times the mask that its scores give, which by default are the tensor itself."""
        scores = t if importance_scores is None else importance_scores
        _same_shape(scores, t, "tensor t")
        return t * self.compute_mask(scores, default_mask=_F["ones_like"](t) if default_mask is None else default_mask)

    def remove(self, module: Module) -> None:
        """Make the product a parameter again, in the place of the original and the mask.  Nothing is restored."""
        self._require_applied(module, " before pruning can be removed")
        name = self._tensor_name
        values = self.apply_mask(module)
        if hasattr(module, name):
            delattr(module, name)
        original: Any = module._parameters[f"{name}_orig"]
        original.data = values.data
        del module._parameters[f"{name}_orig"], module._buffers[f"{name}_mask"]
        setattr(module, name, original)


def _prunes(hook: Any, name: str) -> bool:
    return isinstance(hook, BasePruningMethod) and hook._tensor_name == name


def _same_shape(scores: Any, tensor: Any, called: str) -> None:
    if scores.shape != tensor.shape:
        raise AssertionError(
            f"importance_scores should have the same shape as {called}, got {scores.shape} vs {tensor.shape}"
        )


class PruningContainer(BasePruningMethod):
    """Methods that prune one parameter one after the other; the last one's mask is joined with the mask so far."""

    def __init__(self, *args: Any) -> None:
        self._pruning_methods: tuple[Any, ...] = ()
        if len(args) == 1:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: Any) -> None:
        """Add a method.  Raises `TypeError` for another object, `ValueError` for one that prunes another parameter."""
        if method is not None and not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method is not None and method._tensor_name != self._tensor_name:
            raise ValueError(
                "Can only add pruning methods acting on the parameter named "
                f"'{self._tensor_name}' to PruningContainer {self}. Found '{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: Any) -> Any:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """Return the mask so far with the last method's mask in what is left by it."""
        method = self._pruning_methods[-1]
        left = _left_for(method, t, default_mask)
        mask = default_mask.to(dtype=t.dtype, copy=True)
        mask[left] = method.compute_mask(t[left], default_mask=default_mask[left]).to(dtype=mask.dtype)
        return mask


def _left_for(method: Any, t: Tensor, mask: Any) -> Any:
    """Return the index of what a method may still prune."""
    kind, dims = method.PRUNING_TYPE, t.dim()
    if kind == "unstructured":
        return mask == 1
    every = [slice(None)] * dims
    if kind == "structured":
        if not hasattr(method, "dim"):
            raise AttributeError(
                'Pruning methods of PRUNING_TYPE "structured" need to have the attribute `dim` defined.'
            )
        dim = method.dim + dims if method.dim < 0 else method.dim
        if dim < 0:
            raise IndexError(f"Index is out of bounds for tensor with dimensions {dims}")
        return (*every[:dim], mask.sum(dim=[d for d in range(dims) if d != dim]) != 0, *every[dim + 1 :])
    if kind != "global":
        raise ValueError(f"Unrecognized PRUNING_TYPE {kind}")
    return tuple(every)


class Identity(BasePruningMethod):
    """Prunes nothing, and makes the mask of ones."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        return default_mask


class _Amount(BasePruningMethod):
    """Prunes a number of elements or channels, or a part of them between 0.0 and 1.0."""

    def __init__(self, amount: Any) -> None:
        if not isinstance(amount, Real):
            raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
        if amount < 0 or (not isinstance(amount, Integral) and float(amount) > 1.0):
            raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer")
        self.amount = amount

    def _count(self, size: int) -> int:
        count = int(self.amount) if isinstance(self.amount, Integral) else round(float(self.amount) * size)
        if count > size:
            raise ValueError(f"amount={count} should be smaller than the number of parameters to prune={size}")
        return count

    def _without(self, scores: Any, mask: Any, **largest: bool) -> Any:
        """Return the mask with zeros at the extreme scores."""
        count, mask = self._count(scores.nelement()), mask.clone()
        if count:
            mask.view(-1)[_F["topk"](scores.reshape(-1), k=count, **largest).indices] = 0
        return mask


class RandomUnstructured(_Amount):
    """Prunes elements by chance.  amount: their number, or their part between 0.0 and 1.0."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        return self._without(_F["rand_like"](t), default_mask)


class L1Unstructured(_Amount):
    """Prunes the elements nearest to 0.  amount: their number, or their part between 0.0 and 1.0."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        return self._without(_F["abs"](t), default_mask, largest=False)


class _Structured(_Amount):
    """Prunes channels of the dimension `dim`."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Any, dim: int = -1) -> None:
        super().__init__(amount)
        self.dim = dim

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        if t.dim() <= 1:
            raise ValueError(
                "Structured pruning can only be applied to multidimensional tensors. Found tensor of shape "
                f"{t.shape} with {t.dim()} dims"
            )
        if self.dim >= t.dim():
            raise IndexError(f"Invalid index {self.dim} for tensor of size {t.shape}")
        count = self._count(t.shape[self.dim])
        if not count:
            return default_mask
        mask = _F["zeros_like"](t)
        mask[(*[slice(None)] * (self.dim % t.dim()), self._kept(t, count))] = 1
        mask *= default_mask.to(dtype=mask.dtype)
        return mask

    def _kept(self, t: Any, count: int) -> Any:
        raise NotImplementedError


class RandomStructured(_Structured):
    """Prunes channels by chance.  amount: their number, or their part; dim: the channels' dimension."""

    def _kept(self, t: Any, count: int) -> Any:
        chance = _F["rand"](t.shape[self.dim])
        return chance > _F["kthvalue"](chance, k=count).values


class LnStructured(_Structured):
    """Prunes the channels with the lowest n-norm.  amount: their number, or their part; n: as `p` of `norm`."""

    def __init__(self, amount: Any, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def _kept(self, t: Any, count: int) -> Any:
        others = [d for d in range(t.dim()) if d != self.dim % t.dim()]
        return _F["topk"](_F["norm"](t, p=self.n, dim=others), k=t.shape[self.dim] - count).indices


class CustomFromMask(BasePruningMethod):
    """Prunes by a mask of the user's, joined with the mask so far."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Any) -> None:
        self.mask = mask

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        if default_mask.shape != self.mask.shape:
            raise AssertionError(
                f"default_mask shape {default_mask.shape} must match self.mask shape {self.mask.shape}"
            )
        return default_mask * self.mask.to(dtype=default_mask.dtype)


def identity(module: Any, name: str) -> Any:
    """Give a parameter the form of a pruned one, with a mask of ones; return the module."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Any, name: str, amount: Any) -> Any:
    """Prune elements of a parameter by chance: `amount` of them, a number or a part; return the module.

    >>> import xgrad
    >>> layer = xgrad.nn.utils.prune.random_unstructured(xgrad.nn.Linear(2, 3), "weight", amount=1)
    >>> int((layer.weight_mask == 0).sum())
    1
    """
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Any, name: str, amount: Any, importance_scores: Any = None) -> Any:
    """Prune the elements of a parameter with the lowest scores, which by default are its magnitudes; return the module.

    amount: a number, or a part between 0.0 and 1.0.  Raises `ValueError` and `TypeError` for another one.

    >>> import xgrad
    >>> layer = xgrad.nn.utils.prune.l1_unstructured(xgrad.nn.Linear(2, 3), "weight", amount=0.2)
    >>> list(layer.state_dict())
    ['bias', 'weight_orig', 'weight_mask']
    """
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: Any, name: str, amount: Any, dim: int) -> Any:
    """Prune channels of the dimension `dim` by chance: `amount` of them, a number or a part; return the module."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module: Any, name: str, amount: Any, n: Any, dim: int, importance_scores: Any = None) -> Any:
    """Prune the channels of the dimension `dim` with the lowest `n`-norm; return the module.

    amount: a number of channels, or a part between 0.0 and 1.0.  n: as `p` of `xgrad.norm`.
    """
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def global_unstructured(parameters: Any, pruning_method: Any, importance_scores: Any = None, **kwargs: Any) -> None:
    """Prune several parameters by one comparison of all their elements.

    parameters: pairs (module, name).  pruning_method: an unstructured class, made with **kwargs.
    importance_scores: scores by such pairs; by default each parameter itself.  Raises `TypeError` for other kinds.

    >>> import xgrad
    >>> from xgrad.nn.utils import prune
    >>> net = xgrad.nn.Sequential(xgrad.nn.Linear(2, 2), xgrad.nn.Linear(2, 1))
    >>> weights = [(net[0], "weight"), (net[1], "weight")]
    >>> prune.global_unstructured(weights, pruning_method=prune.L1Unstructured, amount=3)
    >>> int(sum((layer.weight == 0).sum() for layer in net))
    3
    """
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    if importance_scores is not None and not isinstance(importance_scores, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    pairs: Any = list(parameters)
    given = importance_scores or {}
    tensors = [getattr(module, name) for module, name in pairs]
    scores = [given.get((module, name), tensor) for (module, name), tensor in zip(pairs, tensors)]
    masks = [getattr(m, f"{n}_mask", None) for m, n in pairs]
    masks = [_F["ones_like"](tensor) if mask is None else mask for tensor, mask in zip(tensors, masks)]
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            f'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method {pruning_method} of '
            f"type {method.PRUNING_TYPE}"
        )
    method._tensor_name = "temp"
    mask = PruningContainer(method).compute_mask(parameters_to_vector(scores), parameters_to_vector(masks))
    for (module, name), tensor, part in zip(pairs, tensors, mask.split([t.numel() for t in tensors])):
        custom_from_mask(module, name, part.reshape(tensor.shape))


def custom_from_mask(module: Any, name: str, mask: Any) -> Any:
    """Prune a parameter by a mask of its shape; return the module."""
    CustomFromMask.apply(module, name, mask)
    return module


def remove(module: Any, name: str) -> Any:
    """Make a pruned parameter an ordinary one with zeros in it; return the module.

    Raises `ValueError` if it is not pruned.
    """
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and _prunes(hook, name):
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")


def is_pruned(module: Module) -> bool:
    """Return True if a parameter of the module, or of one in it, is pruned."""
    hooks = (hook for _, inner in module.named_modules() for hook in inner._forward_pre_hooks.values())
    return any(isinstance(hook, BasePruningMethod) for hook in hooks)


_close_namespace(__name__)
