"""Flatten and Unflatten: modules that join or split a tensor's dimensions (PyTorch: torch/nn/modules/flatten.py)."""

from typing import Any

from ...tensor import Tensor
from .declared_module import Face, face


@face()
class Flatten(Face):
    """Makes one dimension of those from `start_dim` to `end_dim`.

    >>> import xgrad
    >>> xgrad.nn.Flatten()(xgrad.ones(2, 3, 4)).shape
    xgrad.Size([2, 12])
    """

    start_dim: int = 1
    end_dim: int = -1

    def forward(self, input: Tensor) -> Tensor:
        """Return `input.flatten(start_dim, end_dim)`."""
        return input.flatten(self.start_dim, self.end_dim)


@face()
class Unflatten(Face):
    """Makes several dimensions, of `unflattened_size`, of the dimension `dim`.

    Raises `TypeError` for a size that is not a tuple of integers.

    >>> import xgrad
    >>> xgrad.nn.Unflatten(1, (3, 4))(xgrad.ones(2, 12)).shape
    xgrad.Size([2, 3, 4])
    """

    dim: int
    unflattened_size: Any

    def _keep(self, values: dict[str, Any]) -> None:
        dim, sizes = values["dim"], values["unflattened_size"]
        if isinstance(dim, str):
            raise TypeError(f"Unflatten: dimensions have no names here, got dim={dim!r}: use its number")
        if not isinstance(sizes, tuple | list):
            raise TypeError(f"unflattened_size must be tuple of ints, but found type {type(sizes).__name__}")
        for place, size in enumerate(sizes):
            if not isinstance(size, int):
                raise TypeError(
                    "unflattened_size must be tuple of ints, but found element of type "
                    f"{type(size).__name__} at pos {place}"
                )
        super()._keep(values)

    def forward(self, input: Tensor) -> Tensor:
        """Return `input.unflatten(dim, unflattened_size)`."""
        return input.unflatten(self.dim, self.unflattened_size)
