"""Examples of functions, run: the code, its output, and the call of the function that it makes.

An example comes from the docstring, else from the operator's samples, else from help_examples.py.
"""

import ast
import contextlib
import importlib
import inspect
import io
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import help_examples
import jax
import jax.numpy as jnp
import numpy as np

import xgrad
from xgrad.conformance.sample_arrays import arguments
from xgrad.dispatch.operator import Operator
from xgrad.dispatch.override_calls import _as_given
from xgrad.dispatch.samples import Draw, Sample
from xgrad.dispatch.tables import OPERATORS
from xgrad.tensor import from_array

WIDE = 92  # columns of a line of an example
_TABLE = help_examples.table()


@dataclass
class Entry:
    """A function, and all names under which users find it: (namespace or "Tensor", name)."""

    function: Any
    names: list[tuple[str, str]]
    written: str
    call: tuple[tuple, dict] | None = None  # the arguments of the example's call
    result: Any = None
    typical: tuple[tuple, dict] | None = None  # the arguments of a call with floating-point tensors

    @property
    def place(self) -> str:
        return self.names[0][0]

    @property
    def name(self) -> str:
        return self.names[0][1]

    @property
    def public(self) -> str:
        """The name as a program has it: xgrad.linalg.inv."""
        return f"xgrad.{self.place}.{self.name}".replace("..", ".")

    @property
    def operator(self) -> Operator | None:
        return getattr(self.function, "operator", None)

    @property
    def inplace(self) -> bool:
        return self.name.endswith("_")


# -- code --------------------------------------------------------------------------------------------------------------


def written_example(entry: Entry) -> list[str]:
    """The statements of the docstring's example."""
    return [p for p in inspect.cleandoc(entry.written).split("\n\n") if p.startswith(">>> ")]


def code_of(entry: Entry) -> list[str]:
    """The statements of an example that is not in the docstring; [] if there is none."""
    for place, name in entry.names:
        key = f"{place}.{name}" if place else name
        if key in _TABLE:
            return _with_variables(_TABLE[key])
    op = entry.operator
    if op is None:
        return []
    for sample in sorted(samples_of(op), key=lambda s: not _handy(s)):
        code = _of_sample(entry, op, sample)
        if code:
            return code
    return []


def samples_of(op: Operator) -> list[Sample]:
    """The samples of an operator; an in-place form that has none of its own has the operator's."""
    found = op.samples or getattr(OPERATORS.get(op.name), "samples", ())
    return [s for s in found if isinstance(s, Sample)]


def _handy(sample: Sample) -> bool:
    """True for arrays with elements, few enough to be written down."""
    shapes = [a.shape for a in sample.arrays if isinstance(a, Draw)]
    return all(0 < int(np.prod(s)) <= 6 and len(s) <= 2 for s in shapes) and any(shapes)


def _with_variables(expression: str) -> list[str]:
    read = {node.id for node in ast.walk(ast.parse(expression)) if isinstance(node, ast.Name)}
    used = [f"{name} = {value}" for name, value in help_examples.VARIABLES.items() if name in read]
    return [*used, *expression.split("; ")]


def _of_sample(entry: Entry, op: Operator, sample: Sample) -> list[str]:
    arrays, _, statics = arguments(op, sample, np.float64)
    if any(isinstance(a, Draw) and a.kind in ("key", "here") for a in (*sample.arrays, *sample.statics.values())):
        return []
    given = [from_array(a) if isinstance(a, np.ndarray) else a for a in arrays]
    try:
        args, named = _as_given(op, entry.function, tuple(given), statics)
    except (TypeError, ValueError):
        return []
    texts = {id(t): _literal(a) for t, a in zip(given, arrays, strict=True) if isinstance(a, np.ndarray)}
    names = _names_of(op, given)
    before: list[str] = []

    def text(value: Any) -> str:
        if id(value) in texts:
            shown = texts[id(value)]
            if (entry.inplace and value is given[0]) or len(shown) > 50:
                line = f"{names[id(value)]} = {shown}"
                if line not in before:
                    before.append(line)
                return names[id(value)]
            return shown
        if isinstance(value, list | tuple):
            inside = ", ".join(map(text, value))
            return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' * (len(value) == 1)})"
        if isinstance(value, (np.dtype, xgrad.dtype)):
            return f"xgrad.{value.name}"
        return f'float("{value}")' if value in (float("inf"), -float("inf")) else repr(value)

    parts = [*map(text, args), *(f"{name}={text(value)}" for name, value in named.items())]
    if entry.place == "Tensor":
        return [*before, f"{parts[0]}.{entry.name}({', '.join(parts[1:])})"]
    return [*before, f"{entry.public}({', '.join(parts)})"]


def _names_of(op: Operator, given: list) -> dict[int, str]:
    names = [*("input" if p == "self" else p for p in op.parameters)]
    names += [f"{(op.variadic or 'x').rstrip('s')}{i}" for i in range(len(given) - len(names))]
    return {id(t): name for t, name in zip(given, names, strict=True)}


def _literal(array: np.ndarray) -> str:
    """Source text for a tensor; more than twelve elements are written as a range."""
    kind = array.dtype.kind
    if array.size > 12 or (array.size > 6 and array.ndim > 2):
        shape = ", ".join(map(str, array.shape))
        if kind == "f":
            return f"xgrad.arange({array.size}.0).reshape({shape})"
        if kind in "iu":
            return f"(xgrad.arange({array.size}) % {int(array.max()) + 1}).reshape({shape})"
    if not array.size:
        return f"xgrad.zeros({', '.join(map(str, array.shape))})"
    values = np.round(array, 2) if kind in "fc" else array
    dtype = ", dtype=xgrad.int32" if array.dtype == np.int32 else ""
    return f"xgrad.tensor({values.tolist()}{dtype})"


def typical_call(entry: Entry) -> tuple[tuple, dict] | None:
    """A call with floating-point tensors, where the function takes such: of the first sample, else the example's.

    The operator is the function's own, or the one of the same name, to which a composite passes its arguments.
    """
    op = entry.operator or OPERATORS.get(entry.name)
    for sample in samples_of(op) if op is not None else ():
        if any(isinstance(a, Draw) and a.kind == "key" for a in sample.arrays):
            continue
        arrays, _, statics = arguments(op, sample, np.float32)
        given = tuple([from_array(jnp.asarray(a)) if isinstance(a, np.ndarray) else a for a in arrays])
        with contextlib.suppress(TypeError, ValueError):
            args, named = _as_given(op, entry.function, given, statics)
            passed = [v for a in (*args, *named.values()) for v in (a if isinstance(a, list | tuple) else [a])]
            if all(any(v is g for v in passed) for g in given if isinstance(g, xgrad.Tensor)):
                return args, named
    return entry.call


# -- running -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def recorded(entry: Entry) -> Iterator[list]:
    """Note the calls of a function that happen meanwhile, under any of its names."""
    calls: list = []

    def recorder(function: Any) -> Any:
        def calling(*args: Any, **named: Any) -> Any:
            copies = _copied(args), {n: _copied((v,))[0] for n, v in named.items()}
            result = function(*args, **named)
            calls.append((copies, result))
            return result

        return calling

    patched = []
    for place, name in entry.names:
        owner = xgrad.Tensor if place == "Tensor" else importlib.import_module(f"xgrad.{place}".rstrip("."))
        own = vars(owner)[name]
        patched.append((owner, name, own))
        setattr(owner, name, recorder(own))
    try:
        yield calls
    finally:
        for owner, name, own in patched:
            setattr(owner, name, own)


def _copied(values: Any) -> Any:
    """Tensors as they are now: the call may write into them."""
    found = [
        v.detach().clone() if type(v) is xgrad.Tensor and v.layout == "strided"
        else _copied(v) if type(v) in (list, tuple) else v
        for v in values
    ]  # fmt: skip
    return found if isinstance(values, list) else tuple(found)


def run(entry: Entry, code: list[str]) -> str:
    """Run an example as `python` would at a prompt, and return it with its output; the entry gets the call."""
    scope: dict[str, Any] = {"xgrad": xgrad}
    lines = [">>> import xgrad"]
    skipped = any(word in statement for statement in code for word in help_examples.UNTESTED)
    mark = "  # doctest: +SKIP" if skipped else ""
    wide = jax.config.read("jax_enable_x64")
    xgrad.manual_seed(0)
    with recorded(entry) as calls, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for statement in code:
            lines.append(f">>> {statement}{mark}")
            shown = io.StringIO()
            with contextlib.redirect_stdout(shown):
                exec(compile(statement, "<example>", "single"), scope)
            lines += [line or "<BLANKLINE>" for line in shown.getvalue().splitlines()]
    jax.config.update("jax_enable_x64", wide)
    if calls:
        entry.call, entry.result = calls[0]
    return "\n".join(lines)


def run_written(entry: Entry, example: str) -> None:
    """Run the docstring's example for the call that it makes."""
    statements = [
        "\n".join([first, *rest.splitlines()])
        for first, rest in re.findall(r"^>>> (.*)((?:\n\.\.\. ?.*)*)", example, re.MULTILINE)
    ]
    scope: dict[str, Any] = {}
    with recorded(entry) as calls, warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        for statement in statements:
            text = "\n".join(line[4:] if line.startswith("...") else line for line in statement.split("\n"))
            with contextlib.suppress(Exception):  # an example may show an error
                exec(compile(text + "\n", "<example>", "single"), scope)
    if calls:
        entry.call, entry.result = calls[0]
