"""SDPBackend and sdpa_kernel, without effect here: XLA chooses attention's kernel (PyTorch: torch/nn/attention).

Any choice computes the same, so `sdpa_kernel` checks its argument and does nothing more.
"""

import contextlib
import enum
from collections.abc import Iterator

__all__ = ["WARN_FOR_UNFUSED_KERNELS", "SDPBackend", "sdpa_kernel"]

WARN_FOR_UNFUSED_KERNELS = False


class SDPBackend(enum.IntEnum):
    """The kernels of PyTorch's scaled_dot_product_attention, under its numbers."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4

    def __str__(self) -> str:
        return f"SDPBackend.{self.name}"


@contextlib.contextmanager
def sdpa_kernel(backends: list[SDPBackend] | SDPBackend, set_priority: bool = False) -> Iterator[dict[str, bool]]:
    """A context, or a decorator, in which PyTorch takes one of these kernels for attention; XLA chooses by itself.

    Raises `AssertionError` for an argument that is neither a backend nor a list; a list's items are not checked.

    >>> import xgrad
    >>> from xgrad.nn.attention import SDPBackend, sdpa_kernel
    >>> q = xgrad.ones(1, 2, 3, 4)
    >>> with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
    ...     xgrad.nn.functional.scaled_dot_product_attention(q, q, q).shape
    xgrad.Size([1, 2, 3, 4])
    """
    if not isinstance(backends, (list, SDPBackend)):
        raise AssertionError(
            "Backend must be an instance of SDPBackend or a list of SDPBackend instances, got "
            f"{type(backends).__name__}"
        )
    yield {}
