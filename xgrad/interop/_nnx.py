"""NNXModule: an NNX module of Flax as an `xgrad.nn.Module`, made by `interop.flax.wrap` (see `_wrapped.py`).

An NNX module has its arrays in Variables, which any code may read and set at any time.  Once it is wrapped, a Variable
refers to the tensor, and only the tensor to the array:

    model.conv.kernel ──► Variable ──► Cell ──► table of parameters ──► Tensor ──► array
                                                net.conv.kernel ─────────┘

so that reading the Variable gives the latest value, setting it sets the tensor's value, and a compiled step may
still donate the old array.  An array that was read from a Variable is copied by the next write, as any array that
leaves a tensor.

Invariant: a Variable's class, metadata and place in the graph stay what they are, so that `nnx.state`, `nnx.split`,
`nnx.jit`, optimizers and checkpoints take the module as before.  The one difference is the slot of a Variable's value:
from the first wrapped module on it is a property, which looks for a `Cell`, for all Variables of the process.
"""

import threading
from collections.abc import Callable, Iterable
from operator import is_
from types import MemberDescriptorType
from typing import Any

import jax
from flax import nnx
from flax.nnx import variablelib

from ..base.jax_compat import Tracer
from ..tensor import Tensor
from ..tensor_methods import pytrees
from ._wrapped import (
    Cell,
    Wrapped,
    add,
    arrived,
    as_names,
    checked,
    everything,
    function_over,
    is_array,
    part_at,
    raw,
    sent,
)

__all__ = ["NNXModule"]


# ---------------------------------------------------------------- the value of a Variable

_SLOTS = [
    name for name in ("_raw_value", "raw_value") if isinstance(vars(nnx.Variable).get(name), MemberDescriptorType)
]
if not _SLOTS:
    raise ImportError("xgrad.interop.flax does not know where this version of flax keeps the value of a Variable")
_slot: Any = vars(nnx.Variable)[_SLOTS[0]]


class _Structure(threading.local):
    """A flag of each thread: `alone` is True while it reads the structure of modules, without values."""

    alone: bool = False


_structure = _Structure()


def _get(variable: Any) -> Any:
    value = _slot.__get__(variable)
    if value.__class__ is not Cell:
        return value
    return None if _structure.alone else value.array()


def _set(variable: Any, value: Any) -> None:
    try:
        cell = _slot.__get__(variable)
    except AttributeError:  # the Variable is being made
        cell: Any = None
    if cell.__class__ is not Cell:
        _slot.__set__(variable, value)
    elif is_array(value):
        cell.assign(value)
    else:
        raise TypeError(
            f"a Variable of a wrapped module takes an array, because a tensor shares its value, but got "
            f"{type(value).__name__}"
        )


_property = property(_get, _set, doc="The value; in a wrapped module, its tensor's value.")


def _share_values() -> None:
    """Let Variables of this process refer to tensors: replace the slot of their values by the property.

    The first wrapped NNX module calls it; a program that imports this module and wraps none keeps Flax's class.
    """
    if vars(nnx.Variable)[_SLOTS[0]] is _slot:
        setattr(nnx.Variable, _SLOTS[0], _property)


def _flattened(module: Any) -> tuple[Any, list[tuple[tuple, Any]]]:
    """Return (graphdef, [(path, Variable or array)]) of a module, without reading values."""
    before, _structure.alone = _structure.alone, True
    try:
        graphdef, flat = nnx.graph.flatten(module)
    finally:
        _structure.alone = before
    return graphdef, list(zip(flat.paths, flat.leaves, strict=True))


# ---------------------------------------------------------------- NNX


class NNXModule(Wrapped):
    """A Flax NNX module as an `nn.Module`; made by `wrap`."""

    def __init__(
        self,
        module: Any,
        *,
        method: Any = None,
        wrt: Any = nnx.Param,
        static_argnames: str | Iterable[str] = (),
        policy: Callable | None = everything,
    ) -> None:
        super().__init__(type(module).__name__)
        _share_values()
        self._held = _Held(module, method, wrt, policy, as_names(static_argnames))
        self._method = method  # for `xgrad.compile`, which guards functions
        self._held.refresh(self)
        checked(self, module)
        flags = self._held.flags()
        self._all_training(not flags or not all(flags))

    @property
    def module(self) -> Any:
        """The NNX module itself, whose Variables have the values of these tensors."""
        return self._held.module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the module's result for arguments in which tensors stand for arrays."""
        return self._held.run(self, args, kwargs)

    def train(self, mode: bool = True) -> "NNXModule":
        """Call NNX's `module.train()` or `module.eval()`, and set `training` of all parts."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        (self.module.train if mode else self.module.eval)()
        return self._all_training(mode)

    def _all_training(self, mode: bool) -> "NNXModule":
        for part in self.modules():
            part.training = mode
        return self

    def _again(self) -> "NNXModule":
        held = self._held
        clone = nnx.clone(held.module)
        return NNXModule(clone, method=held.method, wrt=held.wrt, static_argnames=held.static, policy=held.policy)


_KIND = {True: "parameter", False: "buffer"}
_FLAGS = ("deterministic", "use_running_average")  # the flags that NNX's train() and eval() set


class _Result:
    """The outcome of a call: results, new values of cells and of other leaves by their places, and new Variables."""

    def __init__(self, out: Any, cells: dict, others: dict, made: tuple, kinds: tuple) -> None:
        self.out, self.cells, self.others, self.made, self.kinds = out, cells, others, made, kinds


jax.tree_util.register_pytree_node(
    _Result,
    lambda r: ((r.out, r.cells, r.others, r.made), r.kinds),
    lambda kinds, children: _Result(*children, kinds),
)


class _Held:
    """The NNX module of a wrapped one, and a record of its structure.

    An object of its own, into which `xgrad.compile` does not look.
    """

    def __init__(self, module: Any, method: Any, wrt: Any, policy: Any, static: tuple) -> None:
        self.module, self.method, self.wrt, self.policy, self.static = module, method, wrt, policy, static
        self.is_parameter = nnx.filterlib.to_predicate(wrt)
        self.seen: list[tuple[Any, tuple, tuple]] | None = None  # containers, with their keys and values
        self.cells: list[Cell] = []
        self.others: list[tuple[tuple, Any]] = []  # (path, leaf) of leaves that are not tensors
        self.programs: dict[Any, Any] = {}
        self.program: Any = None

    # ------------------------------------------------------------ structure

    def refresh(self, root: NNXModule) -> None:
        """Find the tensors, and the program for the module's structure now."""
        if self.unchanged():
            return
        graphdef, leaves = _flattened(self.module)
        self.cells, self.others, places = [], [], []
        for path, leaf in leaves:
            cell = self.linked(root, path, leaf)
            places.append(cell is not None)
            if cell is None:
                self.others.append((path, leaf))
            else:
                self.cells.append(cell)
        paths = [path for path, _ in leaves]
        key = graphdef, tuple(places), tuple([cell.impl for cell in self.cells])
        self.program = self.programs.get(key)
        if self.program is None:
            pure = _pure(graphdef, paths, places, key[-1], self.method)
            self.program = self.programs[key] = function_over(pure, type(self.module).__name__, self.policy)
        self.look()

    def linked(self, root: NNXModule, path: tuple, leaf: Any) -> Cell | None:
        """Return the cell of a leaf of the module; None for a leaf that is not a Variable with an array."""
        if not isinstance(leaf, nnx.Variable):
            return None
        if not issubclass(type(leaf), nnx.Variable) or variablelib.is_array_ref(_slot.__get__(leaf)):
            raise TypeError(
                f"wrap: the Variable {'.'.join(map(str, path))} is held by a mutable reference (ref=True or "
                "hijax=True), which cannot share its value with a tensor: make the module without it"
            )
        held = _slot.__get__(leaf)
        if held.__class__ is not Cell and not is_array(held):
            return None
        part, owner = part_at(root, path[:-1], self.kind_of), id(self.at(path[:-1]))
        name, trainable = str(path[-1]), self.is_parameter(path, leaf)
        table = part._parameters if trainable else part._buffers
        if held.__class__ is Cell:
            return self.shared(held, part, table, name, trainable, owner)
        if name in table:  # another Variable in the place of a former one
            cell = Cell(table, name)
            cell.assign(held)
        else:
            cell = add(part, name, held, trainable)
        cell.owner = owner
        _slot.__set__(leaf, cell)
        return cell

    def shared(self, held: Cell, part: Any, table: dict, name: str, trainable: bool, owner: int) -> Cell:
        """Return the cell for a Variable that has one, of this wrapped module or an earlier one; add its tensor here.

        If both are the same part of the module, they get one table: a tensor that is put into one is in both.
        """
        if held.table is table:
            return held
        if held.tensor()._is_param is not trainable:
            raise ValueError(
                f"wrap: {name} was a {_KIND[not trainable]} when the module was wrapped before; give wrt= alike"
            )
        if held.owner == owner and held.key == name and not table:
            part.__dict__["_parameters" if trainable else "_buffers"] = held.table
            return held
        table[name] = held.tensor()
        return Cell(table, name, held.impl)

    def kind_of(self, path: tuple) -> str:
        """Return the name of the class of the object at a path in the module."""
        return type(self.at(path)).__name__

    def unchanged(self) -> bool:
        """Return True if every attribute of every module is the same object as in the last call: 1 us a module."""
        if self.seen is None:
            return False
        for container, keys, values in self.seen:
            if container.__class__ is dict:
                if tuple(container) != keys or not all(map(is_, container.values(), values)):
                    return False
            elif len(container) != len(values) or not all(map(is_, container, values)):
                return False
        return True

    def look(self) -> None:
        """Record the containers in the module and their content; nothing, if there are containers of other kinds."""
        found, stack, known = [], [self.module], set()
        self.seen = None
        while stack:
            node = stack.pop()
            if isinstance(node, nnx.Variable) or id(node) in known:
                continue
            known.add(id(node))
            if isinstance(node, nnx.Pytree):
                node = vars(node)
            if node.__class__ is dict:
                found.append((node, tuple(node), tuple(node.values())))
                stack += node.values()
            elif node.__class__ in (list, tuple):
                found.append((node, (), tuple(node)))
                stack += node
            elif not jax.tree_util.all_leaves([node]) and jax.tree_util.tree_leaves(node):
                return
        self.seen = found

    def flags(self) -> list[bool]:
        """Return the flags that NNX's train() and eval() set."""
        before, _structure.alone = _structure.alone, True
        try:
            modules = [node for _, node in nnx.iter_graph(self.module) if isinstance(node, nnx.Module)]
        finally:
            _structure.alone = before
        return [vars(module)[flag] for module in modules for flag in _FLAGS if vars(module).get(flag) is not None]

    # ------------------------------------------------------------ calls

    def run(self, root: NNXModule, args: tuple, kwargs: dict) -> Any:
        """Call the module."""
        self.refresh(root)
        args, kwargs = sent(args, kwargs, self.static)
        others = [_slot.__get__(leaf) if isinstance(leaf, nnx.Variable) else leaf for _, leaf in self.others]
        result = self.program([cell.taken() for cell in self.cells], others, args, kwargs)
        for place, new in result.cells.items():
            self.cells[place].put(new)
        if result.others or result.made:
            self.keep(result)
        return result.out

    def keep(self, result: _Result) -> None:
        """Set Variables that have no array, such as those that `sow` fills, and make new ones."""
        values = result.others, result.made
        if any(isinstance(t._read(), Tracer) for t in pytrees.leaves(values) if isinstance(t, Tensor)):
            raise NotImplementedError(
                f"wrap: a call of {type(self.module).__name__} makes new Variables, or fills one that holds no array "
                "(as sow does), which a compiled function cannot repeat: return the values, or call the module once "
                "outside"
            )
        others, made = pytrees.mapped(lambda t: t._export() if isinstance(t, Tensor) else t, values)
        for place, value in others.items():
            path, leaf = self.others[place]
            if isinstance(leaf, nnx.Variable):
                _slot.__set__(leaf, value)
            else:
                setattr(self.at(path[:-1]), path[-1], value)
        for (path, kind), value in zip(result.kinds, made, strict=True):
            setattr(self.at(path[:-1]), path[-1], kind(value))

    def at(self, path: tuple) -> Any:
        """Return the object at a path in the module."""
        node = self.module
        for key in path:
            named = isinstance(key, str) and not isinstance(node, dict)
            node = getattr(node, key) if named else node[key]
        return node


def _pure(graphdef: Any, paths: list, places: list[bool], impls: tuple, method: Any) -> Callable:
    """Return the module as a function of its leaves."""

    def pure(cells: list, others: list, args: tuple, kwargs: dict) -> _Result:
        arrays = [x if i is None else jax.random.wrap_key_data(x, impl=i) for x, i in zip(cells, impls, strict=True)]
        from_cells, from_others = iter(arrays), iter(others)
        before = [next(from_cells if is_cell else from_others) for is_cell in places]
        module = nnx.graph.unflatten(graphdef, before)
        args, kwargs = arrived(args, kwargs)
        out = _called(module, method, args, kwargs)
        after, leaves = nnx.graph.flatten(module)
        now = {p: _value(leaf) for p, leaf in zip(leaves.paths, leaves.leaves, strict=True)}
        made = [(p, leaf) for p, leaf in zip(leaves.paths, leaves.leaves, strict=True) if p not in known]
        if any(path not in now for path in paths) or (not made and after != graphdef):
            raise RuntimeError(_CHANGED.format(kind=type(module).__name__))
        found: tuple[dict, dict] = ({}, {})
        counts = [0, 0]
        for path, is_cell, value in zip(paths, places, before, strict=True):
            if not _same(now[path], value):
                found[not is_cell][counts[not is_cell]] = raw(now[path]) if is_cell else now[path]
            counts[not is_cell] += 1
        kinds = tuple([(path, type(leaf)) for path, leaf in made])
        return _Result(out, *found, tuple([_value(leaf) for _, leaf in made]), kinds)

    known = frozenset(paths)
    return pure


def _value(leaf: Any) -> Any:
    return _slot.__get__(leaf) if isinstance(leaf, nnx.Variable) else leaf


def _same(now: Any, before: Any) -> bool:
    if now is before:
        return True
    mine, its = jax.tree_util.tree_flatten(now), jax.tree_util.tree_flatten(before)
    return not is_array(now) and mine[1] == its[1] and all(map(is_, mine[0], its[0]))


def _called(module: Any, method: Any, args: tuple, kwargs: dict) -> Any:
    if method is None:
        return module(*args, **kwargs)
    if isinstance(method, str):
        return getattr(module, method)(*args, **kwargs)
    return method(module, *args, **kwargs)


_CHANGED = (
    "wrap: a call of {kind} changes what is not a Variable (an attribute that it sets or counts up, a Variable that it "
    "removes), which the wrapped module cannot pass on. Keep what changes in an nnx.Variable."
)
