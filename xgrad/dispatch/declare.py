"""operator: the decorator that declares an operator as a JAX function, and makes its public functions and methods.

    @operator(inplace=True, dunder="__mul__", rdunder="__rmul__")
    def mul(self, other):
        self, other = promote(self, other)
        return self * other

    mul.derivative(self=lambda grad, other: grad * conj(other),
                   other=lambda grad, self: grad * conj(self))

A declaration is a pure JAX function: positional parameters are *array* arguments (tensors, or numbers, which go in as
arguments and never recompile), `*tensors` a sequence of them; keyword-only parameters are *static*.  `derivative` gives
one formula for each argument, or one for `all`, as in PyTorch's derivatives.yaml; its parameters say what is saved:

    grad (grads)     the gradient of the result (of the results, for an operator with several)
    self, other, ... an array argument of that name: it is saved
    result (results) the result(s): saved
    values, indices  a result that `outputs` gives this name: saved alone
    shapes, dtypes   of all array arguments: static, nothing is saved
    defined          for each result whether it has a gradient (of one that has none, `grads` holds zeros): static
    needs            of an `all` formula: a tuple of bools, one for each array argument
    dim, keepdim ... a static argument of that name
    function         the operator's function, with its static arguments bound

The formula `linear` says that the function is linear in that argument, which then is not saved for its own gradient.
Without a formula an argument is differentiated by `jax.vjp` of the function.  A formula's result may be broadcast: it
is summed and cast to its argument's shape and dtype.  Only the formulas of gradients that are wanted are run and only
what they name is saved.  Second derivatives come from `jax.vjp` of the formula, forward mode from `jax.jvp` of the
function.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

import jax.numpy as jnp

from ..base.dtypes import as_dtype
from ..overrides import overloaded
from ..tensor import Tensor
from ..views.named.arguments import NO_DIMS, require_dims
from . import argument_kinds
from .argument_names import MISSING, Shown, renamed, widened
from .autocasting import asking
from .call import call
from .call_pair import call_adding_pair, call_pair
from .error_names import name_error
from .inplace import call_inplace
from .narrow_sums import compared_overflows
from .operands import is_operand
from .operator import Operator, linear
from .operator import freeze as freeze
from .out import call_out
from .public_code import compiled, place_of, unwritten
from .rounding import rounds_once
from .tables import FUNCTIONS, METHODS, OPERATORS, VARIANTS
from .wrong_arguments import refuse

__all__ = [
    "FUNCTIONS",
    "METHODS",
    "OPERATORS",
    "Declared",
    "Operator",
    "composite",
    "internal",
    "linear",
    "operator",
    "variant",
]


SCOPES: list[dict[str, Any]] = []  # the globals of every function that `_define` made


class Declared:
    """The object that a declaration leaves under its name: callable on arrays, with `derivative` and `function`."""

    def __init__(self, op: Operator, function: Callable[..., Any]) -> None:
        self.operator = op
        self.function = function
        self.derivative: Any = op.derivative

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.operator.function(*args, **kwargs)


def _write(function: Any) -> Callable:
    """Give a public function its own code, from the text in its scope."""
    scope = function.__globals__
    body = scope["_body"].replace("\n", "\n    ")  # inside a `try`, which costs nothing
    text = (
        f"def {function.__name__}({scope['_parameters']}):\n    try:\n        {body}\n"
        "    except Exception as error:\n        _refuse(_me, locals(), error)\n"
        "        _name_error(error, _name)\n        raise\n"
        # `locals()` makes a circle of frame and error, which would keep what an early stop of a checkpoint computed.
        "    except BaseException as error:\n        _name_error(error, _name)\n        raise\n"
    )
    own = compiled(text, function.__name__, scope["_place"], scope)
    function.__defaults__, function.__kwdefaults__ = own.__defaults__, own.__kwdefaults__
    function.__code__ = own.__code__  # last: another thread calls either the old code or all of the new
    scope["_waits"] = False
    return function


def _signature(op: Operator, signature: str | None, out: bool) -> tuple[str, str, str]:
    """(parameters, arrays, statics) as source text."""
    rename = {"self": "input"}
    arrays = [rename.get(p, p) for p in op.parameters]
    if signature is not None:
        parameters = signature
    elif op.variadic:
        parameters = ", ".join(
            [*arrays, op.variadic, *(f"{s}=_defaults['{s}']" if s in op.defaults else s for s in op.static_names)]
        )
    else:
        shown = [
            f"{rename.get(p, p)}=_defaults['{p}']" if p in op.defaults else rename.get(p, p) for p in op.parameters
        ]
        must = [s for s in op.static_names if s not in op.defaults]
        may = [s for s in op.static_names if s in op.defaults]
        if any("=" in s for s in shown) and must:
            raise TypeError(f"{op.name}: give a signature, a required static argument follows an optional array")
        parameters = ", ".join([*shown, *must, *(f"{s}=_defaults['{s}']" for s in may)])
    if out:
        keyword_only = any(p.strip().startswith("*") for p in parameters.split(","))
        parameters += ", out=None" if keyword_only else ", *, out=None"

    def static(name: str) -> str:
        return f"({name} if {name} is None else _as_dtype({name}))" if name == "dtype" else name

    given = f"({''.join(a + ', ' for a in arrays)})"
    if op.variadic:
        given = f"(*{given}, *{op.variadic})" if arrays else f"tuple({op.variadic})"
    return parameters, given, f"({''.join(static(s) + ', ' for s in op.static_names)})"


def _define(op: Operator, public: str, parameters: str, body: str, doc: str | None, namespace: str) -> Callable:
    taken, test = ("", "") if public.startswith("__") else widened(parameters)
    if test:
        body = f"if {test}: return _renamed(_me, locals())\n    " + body
    scope = {
        "__name__": __name__, "_op": op, "_call": call, "_pair": call_pair,
        "_adding_pair": call_adding_pair, "_inplace": call_inplace, "_out": call_out,
        "_as_dtype": as_dtype, "_overloaded": overloaded, "_is_operand": is_operand, "_Tensor": Tensor,
        "NotImplemented": NotImplemented, "_NO_DIMS": NO_DIMS, "_require_dims": require_dims, "_defaults": op.defaults,
        "_checked": argument_kinds.checked, "_check_format": argument_kinds.require_format, "_kinds": op.kinds,
        "_MISSING": MISSING, "_renamed": renamed, "_write": _write, "_refuse": refuse, "_name_error": name_error,
        "_name": op.name if public.startswith("__") else public,
        "_parameters": taken or parameters, "_body": body, "_place": op.place, "_waits": True,
    }  # fmt: skip
    scope["_me"] = function = unwritten(public, op.place, scope)
    SCOPES.append(scope)
    function.__signature__ = Shown(parameters, op.defaults)
    function.__doc__ = doc
    function.__module__ = f"xgrad.{namespace}" if namespace else "xgrad"
    function.__qualname__ = public
    function.operator = op
    return function


def operator(
    name: str | Callable[..., Any] | None = None,
    *,
    signature: str | None = None,
    method: bool = True,
    function: bool = True,
    inplace: bool | str = False,
    out: bool = True,
    dunder: str | None = None,
    rdunder: str | None = None,
    idunder: str | None = None,
    namespace: str | Sequence[str] = "",
    aliases: Sequence[str] = (),
    differentiable: bool = True,
    jit: bool = True,
    outputs: Any = None,
    node: str | None = None,
    pointwise: bool = False,
    check: Callable[..., Any] | None = None,
    output_differentiability: Sequence[bool] = (),
    missing: str = "",
    samples: tuple[Any, ...] = (),
) -> Any:
    """Declare an operator; see the module's docstring.

    `name`: PyTorch's; default: the function's, without trailing underscores.  `signature`: the public parameters in
    PyTorch's order, where they are not arrays first and statics after (`"input, dim, index, *, alpha=1"`).
    `method`, `function`, `inplace`, `out`, `dunder`, `rdunder`, `idunder`, `namespace`, `aliases`: which forms there
    are.  `inplace="argument"`: an argument `inplace=` in place of a method, as in nn.functional.
    `differentiable=False`: nothing is ever recorded.  `jit=False`: the result's shape depends on values, and the
    function is called on concrete arrays.  `outputs`: a named tuple for several results.  `pointwise`: the gradient
    formula may reuse the incoming gradient's memory.  `check`: called with (array arguments, static arguments) at each
    call, before anything runs, for errors that depend on values (an index out of range); it may return other array
    arguments to be used in their place.  `output_differentiability`: which of several results have a gradient (all that
    are floating or complex, unless it is given).  `missing`: PyTorch's name of a derivative that nobody has: the result
    requires grad, and `NotImplementedError` is raised in backward and in forward mode.  `samples`: small inputs, with
    which the operator is tested (samples.py).
    """
    if callable(name):
        return operator()(name)

    def declare(fn: Callable) -> Declared:
        known = name if isinstance(name, str) else fn.__name__.rstrip("_")
        op = Operator(
            known, fn, differentiable=differentiable, jit=jit, outputs=outputs, node=node, pointwise=pointwise,
            samples=samples, wide=rounds_once(known, differentiable and jit, pointwise),
        )  # fmt: skip
        OPERATORS[known] = op
        op.place = place_of(fn, known)
        op.check = check
        op.overflows = compared_overflows(op)
        if missing:
            op.missing, op.formulas["all"] = missing, lambda: refuse_derivative(missing)
        op.constant = frozenset(i for i, moves in enumerate(output_differentiability) if not moves)
        takes_out = out and inplace != "argument"
        op.forms = ("out",) * takes_out + ("inplace",) * bool(inplace)
        parameters, arrays, statics = _signature(op, signature, takes_out)
        places = (namespace,) if isinstance(namespace, str) else tuple(namespace)
        # 1.0 == True == 1: a kernel that one of them made must not be found by another.
        guard = "if dim.__class__ in _NO_DIMS: _require_dims(dim)\n    " if "dim" in op.static_names else ""
        optional = argument_kinds.optional(op.kinds, op.defaults, parameters)
        guard += argument_kinds.guard(op.kinds, optional)
        if "memory_format=None" in parameters:
            guard += "_check_format(_me.__name__, memory_format, input)\n    "
        if check:
            # An object with `__xgrad_function__` that is not a tensor may lack the attributes that a check reads.
            guard += (
                f"arrays = {arrays}\n    try: arrays = _op.check(arrays, {statics}) or arrays\n"
                "    except (AttributeError, TypeError):\n        if not _overloaded(arrays): raise\n    "
            )
            arrays = "arrays"
        body = f"return {_invoke(op, arrays, statics)}"
        if takes_out:
            body = f"if out is not None: return _out(_op, {arrays}, {statics}, out)\n    " + body
        if inplace == "argument":
            parameters += ", inplace=False"
            body = f"if inplace: return _inplace(_op, {arrays}, {statics})\n    " + body
        public = _define(op, known.rpartition(".")[2], parameters, guard + body, fn.__doc__, places[0])
        names = [known, *aliases]
        for alias in names:
            if function:
                for place in places:
                    # PyTorch's own name of xgrad.linalg.inv is linalg_inv: it names the operator and its node.
                    bare = alias.removeprefix(f"{place}_") if place else alias
                    FUNCTIONS.setdefault(place, {})[bare] = public
            if method:
                METHODS[alias] = public
        if inplace:
            bare = _signature(op, signature, False)[0]
            body = f"{guard}return _inplace(_op, {arrays}, {statics})"
            written = _define(
                op if differentiable else _overwriting(op), known + "_", bare, body, _inplace_doc(known), places[0]
            )
            for alias in names:
                if inplace is True:
                    METHODS[alias + "_"] = written
                if function:
                    for place in places:
                        FUNCTIONS.setdefault(place, {})[alias + "_"] = written
            if idunder:
                METHODS[idunder] = written
        if dunder:
            METHODS[dunder] = _binary(op, dunder, "(input, other, )", statics)
        if rdunder:
            order = "(input, other, )" if known in ("add", "mul") else "(other, input, )"  # as PyTorch's edges
            METHODS[rdunder] = _binary(op, rdunder, order, statics)
        return Declared(op, public)

    return declare


# An operator that public functions call: it has no form of its own.
internal: Any = partial(operator, function=False, method=False, out=False)


def variant(name: str, function: Callable[..., Any], **options: Any) -> Operator:
    """Declare an operator without a public function, which shares the name of another one."""
    wide = rounds_once(name, options.get("differentiable", True), options.get("pointwise", False))
    op = Operator(name, function, wide=wide, **options)
    VARIANTS.append(op)
    return op


def _overwriting(op: Operator) -> Operator:
    """Make the in-place form of an operator without derivative; it makes the gradient of the old value zero."""
    twin = Operator(op.name, op.function, outputs=op.outputs, node=op.node_name)
    twin.derivative(all=lambda grad, needs: [jnp.zeros_like(grad)] * len(needs))
    twin.check, twin.place = op.check, op.place
    twin.overwrites = True
    return twin


def refuse_derivative(name: str) -> NoReturn:
    """Raise the error of backward for a derivative that is missing; "aten::" before the name as PyTorch puts it."""
    quoted = name if name.startswith("aten::") else f"'{name}'"
    raise NotImplementedError(
        f"{'' if quoted == name else 'the '}derivative for {quoted} is not implemented: it would be zero or undefined "
        "almost everywhere. detach() what goes in, if no gradient is meant to pass."
    )


def _invoke(op: Operator, arrays: str, statics: str) -> str:
    """The call as source text: two tensors and nothing else have a path of their own."""
    if len(op.parameters) == 2 and not op.variadic and not op.static_names:
        pair = "_pair" if op.overflows is None else "_adding_pair"
        return f"{pair}(_op, {'*arrays' if arrays == 'arrays' else arrays.strip('(), ')})"
    return f"_call(_op, {arrays}, {statics})"


def _binary(op: Operator, public: str, arrays: str, statics: str) -> Callable:
    """Make a Python operator: for an object that is not an operand it returns NotImplemented, so Python tries the
    other."""
    if len(op.parameters) == 1:
        return _define(op, public, "input", f"return _call(_op, (input, ), {statics})", None, "")
    used = ", ".join(f"{s}=_defaults['{s}']" for s in op.static_names)
    extra = "".join(f"_defaults.get({p!r}), " for p in op.parameters[2:])
    arrays = arrays[:-1] + extra + ")"
    body = (
        f"return {_invoke(op, arrays, statics)} if other.__class__ is _Tensor or _is_operand(other) else NotImplemented"
    )
    return _define(op, public, f"input, other{', ' + used if used else ''}", body, None, "")


def _inplace_doc(name: str) -> str:
    return (
        f"In-place version of `xgrad.{name}`: writes the result into `input` (through its view chain) and returns it."
    )


def composite(
    name: str | Callable[..., Any] | None = None,
    *,
    method: bool = True,
    function: bool = True,
    namespace: str | Sequence[str] = "",
    aliases: Sequence[str] = (),
    method_aliases: Sequence[str] = (),
) -> Any:
    """Register a Python function over Tensors, made of operators, which differentiates through them."""
    if callable(name):
        return composite()(name)

    def declare(fn: Callable) -> Callable:
        known = name if isinstance(name, str) else fn.__name__.rstrip("_")
        places = (namespace,) if isinstance(namespace, str) else tuple(namespace)
        if fn.__code__.co_name != known:  # tracebacks and errors show the code's name
            fn.__code__ = fn.__code__.replace(co_name=known, co_qualname=known)
        fn = asking(f"{places[0]}_{known}" if places[0] in ("linalg", "fft") else known, fn)
        fn = argument_kinds.checking(known, fn)
        for alias in (known, *aliases):
            if function:
                for place in places:
                    FUNCTIONS.setdefault(place, {})[alias] = fn
            if method:
                METHODS[alias] = fn
        for alias in method_aliases:
            METHODS[alias] = fn
        return fn

    return declare
