"""gradcheck, gradgradcheck: compare autograd's derivatives with finite differences (PyTorch: autograd/gradcheck.py).

This file has the public functions; the modules beside it are loaded when one is called, because they take 30 ms:

    numerical.py    central differences
    entries.py      the numbers of dense and sparse inputs that these change
    analytical.py   Jacobians by backward and forward mode
    problem.py      a function, its inputs and outputs; two of them for complex numbers
    compare.py      the comparison, element for element or along random directions; the report
    checks.py       batched, undefined and zero gradients
    second.py       the function of gradients that gradgradcheck gives to gradcheck
    error.py        GradcheckError
    legacy.py       get_numerical_jacobian and its like

As in PyTorch `autograd.gradcheck` is the function, and `from xgrad.autograd.gradcheck import GradcheckError` works.
"""

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from ...base import dtypes
from ...base.limits import x64_for_now
from ...tensor import Tensor
from .error import GradcheckError

if TYPE_CHECKING:
    from .legacy import get_analytical_jacobian, get_numerical_jacobian, get_numerical_jacobian_wrt_specific_input

_WIDE: dict[Any, Any] = {dtypes.float32: dtypes.float64, dtypes.complex64: dtypes.complex128}

__all__ = [
    "GradcheckError",
    "get_analytical_jacobian",
    "get_numerical_jacobian",
    "get_numerical_jacobian_wrt_specific_input",
    "gradcheck",
    "gradgradcheck",
]


def _as_tuple(value: Any) -> tuple:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _narrow(x: Any) -> bool:
    """Return True for a dense input of 32 bits that does not overlap itself."""
    if not isinstance(x, Tensor) or x._sparse or x.dtype not in _WIDE:
        return False
    return all(stride or size < 2 for stride, size in zip(x.stride(), x.shape))


def _widened(x: Any) -> Any:
    return x.detach().to(_WIDE[x.dtype]).requires_grad_(x.requires_grad) if _narrow(x) else x


def _in_double(check: Callable[..., bool]) -> Callable[..., bool]:
    """Return a check that computes in float64 where JAX's 64-bit mode is off: there float64 has become float32."""

    @wraps(check)
    def run(func: Callable[..., Any], inputs: Any, *args: Any, **options: Any) -> bool:
        given = _as_tuple(inputs)
        if dtypes.x64_enabled() or not any(map(_narrow, given)):
            return check(func, inputs, *args, **options)
        with x64_for_now():
            try:
                return check(func, tuple(map(_widened, given)), *args, **options)
            except Exception as error:
                error.add_note(
                    "JAX's 64-bit mode is off: gradcheck has called the function with float64 copies of its inputs. If "
                    "it reads other tensors, enable x64 before any is made: jax.config.update('jax_enable_x64', True)"
                )
                raise

    return run


@_in_double
def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Compare the derivatives of `func` at `inputs` with central differences; True if they agree.

    `func` takes tensors and returns a tensor or a tuple of them; all floating point and complex inputs that require
    grad are checked.  They are changed in place, element by element, and changed back: a function may read them by
    other means than its arguments.  Agreement is `|analytical - numerical| <= atol + rtol * |numerical|`.

    The inputs should be float64 or complex128, for which `eps` is chosen; less precise ones are warned about, and will
    most likely fail.  While JAX's 64-bit mode is off, `func` is called in that mode, with float64 copies of them.

    A complex output is checked twice, once by its real part and once by its imaginary part; with respect to a complex
    input z = x + iy the number compared is dL/dx + i dL/dy, which is what backward gives.

    `eps`: half the distance of the two points of a difference.  `raise_exception`: False to return False instead.
    `nondet_tol`: the largest difference of two equal backwards.  `check_undefined_grad`: outputs without a gradient
    count as zero.  `check_grad_dtypes`: gradients have the dtype of their input.  `check_batched_grad`,
    `check_batched_forward_grad`: a batch of (forward) gradients gives the results of one after the other.
    `check_forward_ad`, `check_backward_ad`: the modes to check.  `fast_mode`: compare `v^T J u` for random u and v, not
    J: two runs of `func` instead of two for each element of the inputs.  `masked`: of a sparse input only the entries
    that it has are changed, and its other elements need no gradient.

    Raises `GradcheckError` if anything disagrees, `ValueError` if no input requires grad, `RuntimeError` for an
    input that is expanded, `AssertionError` for arguments that contradict each other.

    >>> import jax, xgrad
    >>> jax.config.update("jax_enable_x64", True)
    >>> x = xgrad.tensor([1.0, 2.0], dtype=xgrad.float64, requires_grad=True)
    >>> xgrad.autograd.gradcheck(lambda x: x.sin() * x, x)
    True
    """
    if not (check_forward_ad or check_backward_ad):
        raise AssertionError("Expected at least one of check_forward_ad or check_backward_ad to be True")
    if check_batched_grad and not check_backward_ad:
        raise AssertionError("Setting check_batched_grad=True requires check_backward_ad to be True")
    if check_batched_forward_grad and not check_forward_ad:
        raise AssertionError("Setting check_batched_forward_grad=True requires check_forward_ad to be True")
    from .compare import Tolerances, check  # imported at first use: it and its imports take 30 ms

    tolerances = Tolerances(eps, atol, rtol, nondet_tol, check_grad_dtypes, fast_mode, bool(masked))
    try:
        check(
            func,
            _as_tuple(inputs),
            tolerances,
            backward=check_backward_ad,
            forward=check_forward_ad,
            batched=check_batched_grad,
            batched_forward=check_batched_forward_grad,
            undefined=check_undefined_grad,
        )
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


@_in_double
def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Check the gradients of `func` by `gradcheck`, as a function of `inputs` and of `grad_outputs`.

    `grad_outputs`: one for each output that requires grad; by default, random numbers between -1 and 1, the
    same each time.  `gen_non_contig_grad_outputs`: make these views with gaps.  `check_rev_over_rev`,
    `check_fwd_over_rev`: differentiate the gradients by backward, by forward mode.  The other arguments and the errors
    are the same as in `gradcheck`.

    >>> import jax, xgrad
    >>> jax.config.update("jax_enable_x64", True)
    >>> x = xgrad.tensor([1.0, 2.0], dtype=xgrad.float64, requires_grad=True)
    >>> xgrad.autograd.gradgradcheck(lambda x: x.sin() * x, x)
    True
    """
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise AssertionError("Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True")
    if check_undefined_grad and not check_rev_over_rev:
        raise AssertionError("Setting check_undefined_grad=True requires check_rev_over_rev to be True")
    if check_batched_grad and not check_rev_over_rev:
        raise AssertionError("Setting check_batched_grad=True requires check_rev_over_rev to be True")
    from .second import gradients_of  # at first use, likewise

    given = _as_tuple(inputs)
    function, arguments = gradients_of(
        func, given, None if grad_outputs is None else _as_tuple(grad_outputs), gen_non_contig_grad_outputs
    )
    return gradcheck(
        function,
        arguments,
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        fast_mode=fast_mode,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
        masked=masked,
    )


# `autograd.gradcheck` is this function, as in PyTorch, so the error is an attribute of it.
gradcheck.GradcheckError = gradgradcheck.GradcheckError = GradcheckError  # pyright: ignore[reportFunctionMemberAccess]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from . import legacy  # at first use, likewise

        return getattr(legacy, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
