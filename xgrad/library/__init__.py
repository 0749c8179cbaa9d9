"""xgrad.library: operators that users register by name (PyTorch: torch.library).

custom_op.py     a Python function as an operator that is opaque to autograd
libraries.py     Library, define, impl, and what registers more for an operator
infer_schema.py  a schema from a function's type hints
opcheck.py       checks of an operator
operator.py      an operator; calls.py: its calls; formula.py: its Function; traced.py: inside of programs
tags.py          tags; schema.py: schemas, and the conversion of arguments; registry.py: namespaces, for xgrad.ops

    @custom_op("mine::f", mutates_args=())        xgrad.ops.mine.f(x)
            │ schema from type hints                    │ finds
            ▼                                           ▼
        CustomOpDef ───────────────────────────► OpOverload ──► kernel of the device

Source: PyTorch's `torch.library`.
"""

from typing import Any, NoReturn

from ..base.missing import close_namespace as _close_namespace
from .custom_op import CustomOpDef, custom_op
from .infer_schema import infer_schema
from .libraries import (
    Library,
    define,
    get_kernel,
    impl,
    register_autocast,
    register_autograd,
    register_fake,
    register_kernel,
    register_torch_dispatch,
    register_vmap,
)
from .opcheck import OpCheckError, opcheck

impl_abstract = register_fake

__all__ = [
    "CustomOpDef", "Library", "OpCheckError", "custom_op", "define", "fallthrough_kernel", "get_ctx", "get_kernel",
    "impl", "impl_abstract", "infer_schema", "opcheck", "register_autocast", "register_autograd", "register_fake",
    "register_kernel", "register_torch_dispatch", "register_vmap", "triton_op", "wrap_triton",
]  # fmt: skip


def triton_op(name: str, fn: Any = None, /, *, mutates_args: Any, schema: Any = None) -> NoReturn:
    """Raise `NotImplementedError`: XLA runs no Triton kernels."""
    raise NotImplementedError(
        f"triton_op({name!r}): XLA runs no Triton kernels. Write the operator with custom_op, and its kernel with "
        "xgrad's operators, or with Pallas through xgrad.from_jax."
    )


def wrap_triton(triton_kernel: Any, /) -> NoReturn:
    """Raise `NotImplementedError`: XLA runs no Triton kernels."""
    raise NotImplementedError("wrap_triton: XLA runs no Triton kernels. Write it with Pallas, through xgrad.from_jax.")


def get_ctx() -> NoReturn:
    """Raise `NotImplementedError`: a program's shapes are known before it runs."""
    raise NotImplementedError(
        "get_ctx: XLA needs the shapes of results before a program runs, so a fake impl cannot make new sizes "
        "(new_dynamic_size). Return a padded tensor and a count, or call the operator outside of xgrad.compile."
    )


def fallthrough_kernel() -> NoReturn:
    """Raise `NotImplementedError`: it stands for a kernel that is left out, and is never called."""
    raise NotImplementedError("fallthrough_kernel() should never be called.")


_close_namespace(__name__)
