"""functional_call, stack_module_state: call modules with other parameters, also stacked ones, for `grad` and `vmap`.

Source: torch/_functorch/functional_call.py.

A module here is an `xgrad.nn.Module`; modules of Flax and Equinox are functions of their parameters already.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ..dispatch.tables import FUNCTIONS
from ..nn.utils.stateless import reparametrized
from ..tensor import Tensor


def functional_call(
    module: Any,
    parameter_and_buffer_dicts: Any,
    args: Any = None,
    kwargs: dict[Any, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Call a module with other tensors in the place of its parameters and buffers.

    `parameter_and_buffer_dicts`: {dotted name: Tensor}, or several of them without a common name; tensors that are not
    named stay.  `args`: a tuple, or one argument.  `tie_weights`: a tensor that the module has under two names is
    replaced under both.  If one `dict` is given, a buffer that it names and forward assigns is in it afterwards.
    Raises `ValueError` for names that come twice and, with `tie_weights`, for different tensors under two names of
    one tensor; `RuntimeError` if `strict` and the names are not exactly the module's.

    >>> import xgrad
    >>> from xgrad.func import functional_call, grad
    >>> linear = xgrad.nn.Linear(2, 1, bias=False)
    >>> grad(lambda p, x: functional_call(linear, p, x).sum())({"weight": xgrad.ones(1, 2)}, xgrad.tensor([3.0, 4.0]))
    {'weight': tensor([[3., 4.]])}
    """
    tensors = _merged(parameter_and_buffer_dicts)
    given = () if args is None else args if isinstance(args, tuple) else (args,)
    with reparametrized(module, tensors, tie_weights=tie_weights, strict=strict) as after:
        result = module(*given, **(kwargs or {}))
    if isinstance(parameter_and_buffer_dicts, dict):
        parameter_and_buffer_dicts.update(after)
    return result


def _merged(dicts: Any) -> dict[str, Tensor]:
    if isinstance(dicts, Mapping):
        return dict(dicts)
    if not isinstance(dicts, Sequence):
        raise ValueError(
            "Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got " + str(type(dicts))
        )
    if not all(isinstance(d, Mapping) for d in dicts):
        raise ValueError("Expected all elements of parameter_and_buffer_dicts to be dictionaries")
    merged: dict[str, Tensor] = {}
    for d in dicts:
        if twice := [name for name in d if name in merged]:
            raise ValueError(f"{twice} appeared in multiple dictionaries; behavior of functional call is ambiguous")
        merged.update(d)
    return merged


def stack_module_state(models: Sequence[Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the parameters and the buffers of equal modules, stacked along a new dimension 0: an ensemble for `vmap`.

    Raises `RuntimeError` for none, and for modules that differ in class, in train or eval mode, or in requires_grad.

    >>> import xgrad
    >>> from xgrad.func import functional_call, stack_module_state, vmap
    >>> models = [xgrad.nn.Linear(2, 1) for _ in range(3)]
    >>> params, buffers = stack_module_state(models)
    >>> vmap(lambda p, x: functional_call(models[0], p, x), in_dims=(0, None))(params, xgrad.ones(4, 2)).shape
    xgrad.Size([3, 4, 1])
    """
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if len({model.training for model in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")
    if len({type(model) for model in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    return (
        _stacked([dict(model.named_parameters()) for model in models]),
        _stacked([dict(model.named_buffers()) for model in models]),
    )


def _stacked(states: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    stack, found = FUNCTIONS[""]["stack"], {}
    for name in states[0]:
        tensors = [state[name] for state in states]
        kinds = {t.requires_grad for t in tensors}
        if len(kinds) > 1:
            raise RuntimeError(f"Expected {name} from each model to have the same .requires_grad")
        stacked = stack(tensors)
        found[name] = stacked.detach().requires_grad_() if kinds == {True} else stacked
    return found
