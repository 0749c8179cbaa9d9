"""PyTorch's view functions (select, permute, ...): they check arguments and append the view to a `ViewChain`.

A ViewChain is the list of steps from a storage to a view (../chain.py).  The table below declares the functions for
`ViewChain.view`.  Invariant: every wrong argument raises here, before anything is changed; the resulting steps are in
bounds.  The messages have the phrases of aten/src/ATen/native/TensorShape.cpp.
"""

from ..chain import declare_views
from . import reinterpreted, shapes, slices, transposes

declare_views({
    "select": slices.select, "narrow": slices.narrow, "slice": slices.slice_, "getitem": slices.getitem,
    "diagonal": slices.diagonal, "unfold": slices.unfold,

    "permute": transposes.permute, "transpose": transposes.transpose, "swapaxes": transposes.transpose,
    "swapdims": transposes.transpose, "movedim": transposes.movedim, "moveaxis": transposes.movedim,
    "t": transposes.t, "T": transposes.T, "mT": transposes.mT, "H": transposes.H, "mH": transposes.mH,
    "adjoint": transposes.adjoint,

    "view": shapes.view, "reshape": shapes.reshape, "flatten": shapes.flatten, "unflatten": shapes.unflatten,
    "squeeze": shapes.squeeze, "unsqueeze": shapes.unsqueeze, "expand": shapes.expand,

    "alias": reinterpreted.alias, "as_strided": reinterpreted.as_strided, "view_dtype": reinterpreted.view_dtype,
    "conj": reinterpreted.conj, "neg_view": reinterpreted.neg_view, "real": reinterpreted.real,
    "imag": reinterpreted.imag, "view_as_real": reinterpreted.view_as_real,
    "view_as_complex": reinterpreted.view_as_complex,
})  # fmt: skip
