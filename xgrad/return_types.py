"""Defines the named tuples that operators with several results return, such as `max(dim)`, as in torch.return_types.

>>> import xgrad
>>> values, indices = xgrad.tensor([3.0, 1.0, 2.0]).sort()
>>> xgrad.tensor([[3.0, 1.0]]).max(dim=1).indices
tensor([0])
"""

from collections import namedtuple
from typing import Any

_FIELDS = {
    "max": "values indices", "min": "values indices", "median": "values indices", "nanmedian": "values indices",
    "mode": "values indices", "kthvalue": "values indices", "sort": "values indices", "topk": "values indices",
    "cummax": "values indices", "cummin": "values indices", "aminmax": "min max", "frexp": "mantissa exponent",
    "slogdet": "sign logabsdet", "linalg_slogdet": "sign logabsdet", "linalg_qr": "Q R", "qr": "Q R",
    "linalg_eigh": "eigenvalues eigenvectors", "linalg_eig": "eigenvalues eigenvectors", "linalg_svd": "U S Vh",
    "svd": "U S V", "linalg_lu": "P L U", "linalg_inv_ex": "inverse info", "linalg_cholesky_ex": "L info",
    "histogram": "hist bin_edges", "histogramdd": "hist bin_edges",
    "linalg_solve_ex": "result info", "linalg_lstsq": "solution residuals rank singular_values",
    "linalg_lu_factor": "LU pivots", "linalg_lu_factor_ex": "LU pivots info", "lu_unpack": "P L U",
    "linalg_ldl_factor": "LD pivots", "linalg_ldl_factor_ex": "LD pivots info", "geqrf": "a tau",
    "triangular_solve": "solution cloned_coefficient",
}  # fmt: skip


def _make(name: str, fields: str) -> Any:
    def show(self: Any) -> str:
        return f"xgrad.return_types.{name}(\n" + ",\n".join(f"{f}={v!r}" for f, v in zip(self._fields, self)) + ")"

    return type(name, (namedtuple(name, fields),), {"__slots__": (), "__repr__": show, "__module__": __name__})


globals().update({name: _make(name, fields) for name, fields in _FIELDS.items()})


def __getattr__(name: str) -> Any:  # for type checkers: the names are made from the table
    raise AttributeError(f"module 'xgrad.return_types' has no attribute '{name}'")


def __dir__() -> list[str]:
    """Return the names that users may use, which `__all__` has too."""
    return sorted(_FIELDS)


globals()["__all__"] = __dir__()
