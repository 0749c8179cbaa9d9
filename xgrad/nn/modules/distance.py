"""CosineSimilarity and PairwiseDistance: modules that compare vectors (PyTorch: torch/nn/modules/distance.py)."""

from typing import Any

from ...tensor import Tensor
from .. import functional as F
from .declared_module import Face, face


@face("cosine_similarity", tensors="x1 x2", shown="")
class CosineSimilarity(Face):
    """The cosine of the angle between two tensors along `dim`.

    >>> import xgrad
    >>> xgrad.nn.CosineSimilarity(0)(xgrad.tensor([3.0, 0.0]), xgrad.tensor([1.0, 0.0]))
    tensor(1.)
    """

    dim: int = 1
    eps: float = 1e-8


@face(shown="")
class PairwiseDistance(Face):
    """The p-norm of the difference of two tensors along the last dimension; the attribute `norm` is p."""

    p: float = 2.0
    eps: float = 1e-6
    keepdim: bool = False

    def _keep(self, values: dict[str, Any]) -> None:
        self.norm: Any = values.pop("p")
        super()._keep(values)

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Return `nn.functional.pairwise_distance`."""
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)
