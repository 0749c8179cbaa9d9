"""BatchNorm1d to 3d, and SyncBatchNorm: normalize over a batch (PyTorch: torch/nn/modules/batchnorm.py)."""

from typing import Any

from ...autograd.grad_mode import no_grad
from ...base import dtypes
from ...dispatch.tables import FUNCTIONS
from ...tensor import Tensor
from .. import functional as F
from .. import init
from ..module import Module
from ..parameter import Parameter, UninitializedBuffer
from .lazy import LazyModuleMixin, uninitialized


def _count(device: Any) -> Tensor:
    return FUNCTIONS[""]["tensor"](0, dtype=dtypes.default_integer(), device=device)


class _NormBase(Module):
    """Base class: weight and bias of ones and zeros, running statistics, and a count of the batches they are of.

    The count has dtype int64, or int32 while JAX's 64-bit mode is off.
    """

    _version = 2  # since when state dictionaries have the count
    num_features: int
    eps: float
    momentum: float | None
    affine: bool
    track_running_stats: bool
    weight: Any
    bias: Any
    running_mean: Any
    running_var: Any
    num_batches_tracked: Any

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, device: Any = None, dtype: Any = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        functions, where = FUNCTIONS[""], {"device": device, "dtype": dtype}
        for name, has in (("weight", affine), ("bias", affine and bias)):
            self.register_parameter(name, Parameter(functions["empty"](num_features, **where)) if has else None)
        tracked = track_running_stats
        self.register_buffer("running_mean", functions["zeros"](num_features, **where) if tracked else None)
        self.register_buffer("running_var", functions["ones"](num_features, **where) if tracked else None)
        self.register_buffer("num_batches_tracked", _count(device) if tracked else None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Forget all batches: mean 0, variance 1."""
        if self.track_running_stats:
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)
            init.zeros_(self.num_batches_tracked)

    def reset_parameters(self) -> None:
        """Set weight, bias and statistics to their first values."""
        self.reset_running_stats()
        if self.affine:
            init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def _check_input_dim(self, input: Tensor) -> None:
        raise NotImplementedError(f"{type(self).__name__} defines no _check_input_dim")

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], *lists: Any
    ) -> None:
        if (local_metadata.get("version") or 1) < 2 and self.num_batches_tracked is not None:
            state_dict.setdefault(f"{prefix}num_batches_tracked", self.num_batches_tracked)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *lists)

    def extra_repr(self) -> str:
        """Return the arguments as text."""
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_NormBase):
    """Base class of those that normalize each channel over the batch."""

    def _momentum(self) -> Any:
        """Count this batch, if it is tracked; return what part of the running statistics it becomes.

        Without a momentum these are means over all batches: the part is a tensor, so that nothing waits for the count
        and each count has the same program.
        """
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                dtype = self.running_mean.dtype  # of 16 bits it does not hold large counts
                return 1.0 / self.num_batches_tracked.to(dtype if dtype.itemsize >= 4 else dtypes.float32)
        return 0.0 if self.momentum is None else self.momentum

    def forward(self, input: Tensor) -> Tensor:
        """Return `nn.functional.batch_norm`: by the batch's statistics in training, by the running ones otherwise."""
        self._check_input_dim(input)
        momentum, mean, var = self._momentum(), self.running_mean, self.running_var
        by_batch = self.training or (mean is None and var is None)
        if self.training and not self.track_running_stats:
            mean = var = None
        return F.batch_norm(input, mean, var, self.weight, self.bias, by_batch, momentum, self.eps)


class _LazyNormBase(LazyModuleMixin, _NormBase):
    """The lazy forms: `num_features` is the second size of the first batch."""

    def __init__(
        self, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True, track_running_stats: bool = True,
        device: Any = None, dtype: Any = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(0, eps, momentum, False, False, device, dtype, bias=False)
        self.affine, self.track_running_stats = affine, track_running_stats
        uninitialized(self, device, dtype, weight=affine, bias=affine and bias)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            self.running_var = UninitializedBuffer(device=device, dtype=dtype)
            self.num_batches_tracked = _count(device)

    def reset_parameters(self) -> None:
        """Set weight, bias and statistics to their first values, if they have a shape."""
        if not self.has_uninitialized_params() and self.num_features:
            super().reset_parameters()

    @no_grad()
    def initialize_parameters(self, input: Tensor) -> None:
        """Materialize weight, bias and statistics for the channels of the input."""
        if self.has_uninitialized_params():
            self.num_features = input.shape[1]
            for value in (self.weight, self.bias, self.running_mean, self.running_var):
                if value is not None:
                    value.materialize((self.num_features,))
            self.reset_parameters()


def _expected(input: Tensor, *allowed: int) -> None:
    if input.dim() not in allowed:
        wanted = " or ".join(f"{n}D" for n in allowed)
        raise ValueError(f"expected {wanted} input (got {input.dim()}D input)")


class BatchNorm1d(_BatchNorm):
    """Mean 0 and variance 1 for each channel over the batch, then `· weight + bias`.

    For an input of shape (N, C) or (N, C, L); raises `ValueError` for others.
    """

    def _check_input_dim(self, input: Tensor) -> None:
        _expected(input, 2, 3)


class BatchNorm2d(_BatchNorm):
    """BatchNorm1d for images, of shape (N, C, H, W); raises `ValueError` for others.

    >>> import xgrad
    >>> bn = xgrad.nn.BatchNorm2d(3)
    >>> y = bn(xgrad.ones(2, 3, 4, 4))
    >>> bn.running_mean, bn.num_batches_tracked
    (tensor([0.1000, 0.1000, 0.1000]), tensor(1))
    """

    def _check_input_dim(self, input: Tensor) -> None:
        _expected(input, 4)


class BatchNorm3d(_BatchNorm):
    """BatchNorm1d for an input of shape (N, C, D, H, W); raises `ValueError` for others."""

    def _check_input_dim(self, input: Tensor) -> None:
        _expected(input, 5)


class SyncBatchNorm(_BatchNorm):
    """BatchNorm over the whole batch, however it is sharded.

    A batch that is sharded over devices is one array here: every BatchNorm takes its statistics over all of it.  This
    class is the one that takes any number of dimensions, and that programs for several processes ask for;
    `process_group` is kept and not used.
    """

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, process_group: Any = None, device: Any = None, dtype: Any = None, *,
        bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")
        if input.shape[1] == 0:
            raise ValueError("SyncBatchNorm number of input channels should be non-zero")

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """Return the module with a SyncBatchNorm in the place of each BatchNorm, with its tensors."""
        found = module
        if isinstance(module, _BatchNorm):
            found = SyncBatchNorm(
                module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats,
                process_group, bias=module.bias is not None,
            )  # fmt: skip
            for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
                setattr(found, name, getattr(module, name))
            found.training = module.training
        for name, child in module.named_children():
            found.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return found


class LazyBatchNorm1d(_LazyNormBase, _BatchNorm):
    """BatchNorm1d whose `num_features` comes from the first batch."""

    cls_to_become = BatchNorm1d
    _check_input_dim = BatchNorm1d._check_input_dim


class LazyBatchNorm2d(_LazyNormBase, _BatchNorm):
    """BatchNorm2d whose `num_features` comes from the first batch.

    >>> import xgrad
    >>> layer = xgrad.nn.LazyBatchNorm2d()
    >>> layer(xgrad.ones(1, 3, 2, 2)).shape, layer.num_features
    (xgrad.Size([1, 3, 2, 2]), 3)
    """

    cls_to_become = BatchNorm2d
    _check_input_dim = BatchNorm2d._check_input_dim


class LazyBatchNorm3d(_LazyNormBase, _BatchNorm):
    """BatchNorm3d whose `num_features` comes from the first batch."""

    cls_to_become = BatchNorm3d
    _check_input_dim = BatchNorm3d._check_input_dim
