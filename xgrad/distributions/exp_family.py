"""ExponentialFamily: a base class of distributions; finds entropy and KL divergence by gradients of the log normalizer.

PyTorch (torch/distributions/exp_family.py) detaches the parameters, and so has no gradients of these; here they are
recorded.
"""

from typing import Any

from ..func.derivatives import vjp
from ..tensor import Tensor
from .distribution import Distribution
from .utils import T, sum_rightmost

__all__ = ["ExponentialFamily", "bregman_divergence"]


def _absent(self: Any, *natural_params: Any) -> Any:
    raise NotImplementedError


class ExponentialFamily(Distribution):
    """The base class of distributions with a density exp(⟨t(x), θ⟩ - F(θ) + k(x)).

    A subclass has `_natural_params`, the tensors θ, and `_log_normalizer(*θ)`, which is F; with them `kl_divergence` of
    two distributions of one class is a Bregman divergence.  With `_mean_carrier_measure`, the mean of k(x), it has an
    entropy.  Source: F. Nielsen, R. Nock, Entropies and cross-entropies of exponential families (2010).

    >>> import xgrad
    >>> from xgrad.distributions import ExponentialFamily, kl_divergence
    >>> class Decay(ExponentialFamily):
    ...     arg_constraints, _mean_carrier_measure = {}, 0
    ...     def __init__(self, rate):
    ...         self.rate = rate
    ...         super().__init__(rate.shape)
    ...     @property
    ...     def _natural_params(self):
    ...         return (-self.rate,)
    ...     def _log_normalizer(self, x):
    ...         return -(-x).log()
    >>> p, q = Decay(xgrad.tensor(1.0)), Decay(xgrad.tensor(2.0))
    >>> p.entropy(), kl_divergence(p, q)
    (tensor(1.), tensor(0.3069))
    """

    _natural_params: Any = property(_absent)
    _log_normalizer: Any = _absent
    _mean_carrier_measure: Any = property(_absent)

    def entropy(self) -> Tensor:
        carrier = self._mean_carrier_measure
        natural, value, slopes = _normalized(self)
        products = (_events_sum(n * slope, self._batch_shape) for n, slope in zip(natural, slopes))
        return value - carrier - sum(products)


def _normalized(p: Any) -> tuple[list[Tensor], Tensor, Any]:
    """Return the natural parameters, the log normalizer, and its gradients; all recorded if the parameters are."""
    natural = list(p._natural_params)
    value, slopes_for = vjp(p._log_normalizer, *natural)
    return natural, value, slopes_for(T["ones_like"](value))


def _events_sum(value: Tensor, batch: Any) -> Tensor:
    return sum_rightmost(value, max(value.dim() - len(batch), 0))


def bregman_divergence(p: Any, q: Any) -> Tensor:
    """Return KL(p, q) for two distributions of one exponential family.

    Raises `NotImplementedError` for two families.
    """
    if type(p) is not type(q):
        raise NotImplementedError(
            "The cross KL-divergence between different exponential families cannot be computed using Bregman "
            f"divergences, so there is none for {type(p).__name__} and {type(q).__name__}"
        )
    batch = T["broadcast_shapes"](p.batch_shape, q.batch_shape)
    natural, value, slopes = _normalized(p)
    others = q._natural_params
    total = q._log_normalizer(*others) - value
    return total - sum(_events_sum((b - a) * slope, batch) for a, b, slope in zip(natural, others, slopes))
