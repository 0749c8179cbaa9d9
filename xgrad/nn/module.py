"""Module: the base class of layers, with parameters, buffers and submodules (PyTorch: torch/nn/modules/module.py).

It has the tree and its attributes; state, conversion and hooks are in files of their own.  Invariant: `__setattr__`
puts each name into one place only: `_parameters`, `_buffers`, `_modules` or the instance's dictionary.
`OptimizedModule` is the module that `xgrad.compile(module)` returns.

More than 450 lines: the methods of one class, which PyTorch has on it, too.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from ..base.tracebacks import shorten
from ..tensor import Tensor
from . import conversion
from . import state_dict as states
from .hook_registration import REGISTRATION, WithHooks, as_registered
from .module_hooks import ANY, call_with_hooks
from .optimized import Optimized
from .parameter import Buffer, Parameter, zero_grads


def _checked_name(module: Any, kind: str, name: Any, table: dict) -> None:
    if not isinstance(name, str):
        raise TypeError(f"{kind} name should be a string. Got {type(name).__name__}")
    if "." in name:
        raise KeyError(f'{kind} name can\'t contain ".", got: {name}')
    if name == "":
        raise KeyError(f'{kind} name can\'t be empty string ""')
    if hasattr(module, name) and name not in table:
        raise KeyError(f"attribute '{name}' already exists")


def _containers() -> dict[str, Any]:
    """Return the attributes of hooks, which a module that was pickled by an older version may lack."""
    return {
        "_backward_pre_hooks": OrderedDict(), "_backward_hooks": OrderedDict(), "_is_full_backward_hook": None,
        "_forward_hooks": OrderedDict(), "_forward_hooks_with_kwargs": OrderedDict(),
        "_forward_hooks_always_called": OrderedDict(), "_forward_pre_hooks": OrderedDict(),
        "_forward_pre_hooks_with_kwargs": OrderedDict(), "_state_dict_hooks": OrderedDict(),
        "_state_dict_pre_hooks": OrderedDict(), "_load_state_dict_pre_hooks": OrderedDict(),
        "_load_state_dict_post_hooks": OrderedDict(),
    }  # fmt: skip


class Module(WithHooks):
    """Base class of modules: subclasses call `super().__init__()`, assign parameters and modules, and define `forward`.

    >>> import xgrad
    >>> from xgrad import nn
    >>> class Scale(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.factor = nn.Parameter(xgrad.ones(2))
    ...     def forward(self, x):
    ...         return self.factor * x
    >>> scale = Scale()
    >>> scale(xgrad.tensor([1.0, 2.0])).sum().backward()
    >>> [(name, p.grad) for name, p in scale.named_parameters()]
    [('factor', tensor([1., 2.]))]
    """

    training: bool
    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    _modules: "dict[str, Module | None]"

    dump_patches: bool = False
    call_super_init: bool = False  # True: `__init__` calls the next class's, with all arguments
    _version: int = 1
    _compiled_call_impl: Any = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init and (args or kwargs):
            got = (
                f"got an unexpected keyword argument '{next(iter(kwargs))}'"
                if kwargs
                else f"takes 1 positional argument but {len(args) + 1} were given"
            )
            raise TypeError(f"{type(self).__name__}.__init__() {got}")
        self.__dict__.update(
            training=True, _parameters={}, _buffers={}, _non_persistent_buffers_set=set(), _modules={}, **_containers()
        )
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_compiled_call_impl"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(_containers() | state)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the module's result; subclasses define it."""
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._compiled_call_impl is not None:
            return self._compiled_call_impl(*args, **kwargs)
        if self._forward_hooks or self._forward_pre_hooks or self._backward_hooks or self._backward_pre_hooks or ANY:
            return call_with_hooks(self, args, kwargs)
        try:
            return self.forward(*args, **kwargs)
        except BaseException as error:
            shorten(error)
            raise

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        return call_with_hooks(self, args, kwargs)

    def compile(self, **options: Any) -> None:
        """Run later calls of this module by `xgrad.compile`, which takes `options` (disable=True: as before)."""
        from ..compiler import compile  # at the call: it is a layer above

        self.__dict__["_compiled_call_impl"] = compile(self._call_impl, **options)

    def _compiled_as(self, compiled: Any) -> Any:
        """Return the module that `xgrad.compile(self)` is."""
        return OptimizedModule(self, compiled)

    # -- attributes -----------------------------------------------------------------------------------------------

    def register_parameter(self, name: str, param: Any) -> None:
        """Add a parameter, or None in the place of one.

        Raises `TypeError` unless it is a Parameter or None, `ValueError` for the result of an operation (a non-leaf),
        `KeyError` for a name that is in use or contains a dot.
        """
        table = self._table("_parameters", "parameters")
        _checked_name(self, "parameter", name, table)
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"cannot assign '{type(param).__name__}' object to parameter '{name}' "
                "(xgrad.nn.Parameter or None required)"
            )
        if param is not None and not param.is_leaf:
            raise ValueError(
                f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created explicitly. To "
                f"express '{name}' as a function of another Tensor, compute the value in the forward() method."
            )
        table[name] = as_registered("parameter", self, name, param) if REGISTRATION["parameter"] else param

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        """Add a tensor that is state and no parameter; `state_dict()` contains it if `persistent`."""
        table = self._table("_buffers", "buffer")
        _checked_name(self, "buffer", name, table)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{type(tensor).__name__}' object to buffer '{name}' (xgrad Tensor or None required)"
            )
        table[name] = as_registered("buffer", self, name, tensor) if REGISTRATION["buffer"] else tensor
        (self._non_persistent_buffers_set.discard if persistent else self._non_persistent_buffers_set.add)(name)

    def register_module(self, name: str, module: "Module | None") -> None:
        """Add a module inside of this one."""
        table = self._table("_modules", "module")
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{type(module).__name__} is not a Module subclass")
        _checked_name(self, "module", name, table)
        table[name] = as_registered("module", self, name, module) if REGISTRATION["module"] else module

    def add_module(self, name: str, module: "Module | None") -> None:
        """Add a module inside of this one: `register_module`."""
        self.register_module(name, module)

    def _table(self, name: str, kind: str) -> dict:
        table = self.__dict__.get(name)
        if table is None:
            raise AttributeError(f"cannot assign {kind} before Module.__init__() call")
        return table

    def __setattr__(self, name: str, value: Any) -> None:
        for holder, kind, kinds in _HOLDERS:
            if isinstance(value, kinds):
                self._table(holder, {"parameter": "parameters"}.get(kind, kind))
                self._forget(name, keep=holder)
                if kind == "buffer":
                    self.register_buffer(name, value, getattr(value, "persistent", True))
                elif kind == "parameter":
                    self.register_parameter(name, value)
                else:  # without a look at the attribute, which a `__getattr__` of the user's may not be ready for
                    hooks = REGISTRATION[kind]
                    self._modules[name] = as_registered(kind, self, name, value) if hooks else value
                return
            table = self.__dict__.get(holder)
            if table is not None and name in table:
                if value is None or (kind == "buffer" and isinstance(value, Tensor)):
                    table[name] = value
                    return
                raise TypeError(
                    f"cannot assign '{type(value).__name__}' as {_SHOWN[kind]} '{name}' ({_EXPECTED[kind]} expected)"
                )
        object.__setattr__(self, name, value)

    def _forget(self, name: str, keep: str = "") -> None:
        self.__dict__.pop(name, None)
        for holder, kind, _ in _HOLDERS:
            if holder != keep:
                self.__dict__[holder].pop(name, None)
                if kind == "buffer":
                    self._non_persistent_buffers_set.discard(name)

    def __getattr__(self, name: str) -> Any:
        for holder, _, _ in _HOLDERS:
            table = self.__dict__.get(holder)
            if table is not None and name in table:
                return table[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __delattr__(self, name: str) -> None:
        for holder, _, _ in _HOLDERS:
            if name in self.__dict__.get(holder, ()):
                del self.__dict__[holder][name]
                self._non_persistent_buffers_set.discard(name)
                return
        if name not in self.__dict__:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        inside = [name for holder, _, _ in _HOLDERS for name in self.__dict__.get(holder, ())]
        return sorted({*object.__dir__(self), *(name for name in inside if not name[0].isdigit())})

    # -- the tree -------------------------------------------------------------------------------------------------

    def named_modules(
        self, memo: set[Any] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> "Iterator[tuple[str, Module]]":
        """Yield (dotted name, module) of this module and all inside, each once unless `remove_duplicate=False`."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                inner = f"{prefix}.{name}" if prefix else name
                yield from module.named_modules(memo, inner, remove_duplicate)

    def modules(self) -> "Iterator[Module]":
        """Yield this module and all inside of it, each once."""
        for _, module in self.named_modules():
            yield module

    def named_children(self) -> "Iterator[tuple[str, Module]]":
        """Yield (name, module) of the modules directly inside of this one, each once."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> "Iterator[Module]":
        """Yield the modules directly inside of this one, each once."""
        for _, module in self.named_children():
            yield module

    def _named_members(self, holder: str, prefix: str, recurse: bool, unique: bool) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        inside = self.named_modules(prefix=prefix, remove_duplicate=unique) if recurse else [(prefix, self)]
        for path, module in inside:
            for name, value in module.__dict__[holder].items():
                if value is None or id(value) in seen:
                    continue
                if unique:
                    seen.add(id(value))
                yield (f"{path}.{name}" if path else name), value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """Yield (dotted name, parameter), each parameter once unless `remove_duplicate=False`."""
        return self._named_members("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Any]:
        """Yield the parameters, each once, for an optimizer."""
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """Yield (dotted name, buffer), each buffer once unless `remove_duplicate=False`."""
        return self._named_members("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Any]:
        """Yield the buffers, each once."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def get_submodule(self, target: str) -> "Module":
        """Return the module with a dotted name.  Raises `AttributeError` if there is none."""
        module: Any = self
        for name in target.split(".") if target else ():
            if not hasattr(module, name):
                raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
            module = getattr(module, name)
            if not isinstance(module, Module):
                raise AttributeError(f"`{name}` is not an nn.Module")
        return module

    def set_submodule(self, target: str, module: "Module", strict: bool = False) -> None:
        """Put a module under a dotted name; with `strict` there must be one already.

        Raises `ValueError` for an empty name or a value that is not a module, `AttributeError` if the path does not
        exist.
        """
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{parent._get_name()} has no attribute `{name}`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    def _member(self, target: str, holder: str, what: str) -> Any:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
        if module.__dict__[holder].get(name) is None:
            raise AttributeError(f"`{name}` is not {what}")
        return module.__dict__[holder][name]

    def get_parameter(self, target: str) -> Any:
        """Return the parameter with a dotted name.  Raises `AttributeError` if there is none."""
        return self._member(target, "_parameters", "an nn.Parameter")

    def get_buffer(self, target: str) -> Tensor:
        """Return the buffer with a dotted name.  Raises `AttributeError` if there is none."""
        return self._member(target, "_buffers", "a buffer")

    # -- state ----------------------------------------------------------------------------------------------------

    state_dict: Any = states.state_dict
    load_state_dict: Any = states.load_state_dict
    _save_to_state_dict, _load_from_state_dict = states.save_own_state, states.load_own_state
    get_extra_state: Any = states.get_extra_state
    set_extra_state: Any = states.set_extra_state

    def apply(self, fn: "Callable[[Module], Any]") -> "Module":
        """Call `fn` on each module inside of this one and at last on this one, which is returned."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def train(self, mode: bool = True) -> "Module":
        """Set `training` in this module and all inside of it."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> "Module":
        """`train(False)`."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> "Module":
        """Set `requires_grad` of all parameters."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set the gradients of all parameters to None, or fill them with zeros."""
        zero_grads(self.parameters(), set_to_none)

    to: Any
    type: Callable[..., Any]
    _apply, to, type = conversion.apply, conversion.to, conversion.as_type
    float: Callable[..., Any]
    double: Callable[..., Any]
    half: Callable[..., Any]
    float, double, half = conversion.as_float, conversion.as_double, conversion.as_half
    bfloat16: Callable[..., Any]
    cpu: Callable[..., Any]
    bfloat16, cpu = conversion.as_bfloat16, conversion.on_cpu
    cuda: Callable[..., Any]
    to_empty: Callable[..., Any]
    cuda, to_empty = conversion.on_cuda, conversion.to_empty
    share_memory: Any = conversion.share_memory

    # -- text -----------------------------------------------------------------------------------------------------

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """Return the text that `repr` shows between the parentheses; subclasses define it."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr().split("\n") if self.extra_repr() else []
        inside = [f"({name}): {_indented(repr(module))}" for name, module in self._modules.items()]
        if not inside and len(extra) <= 1:
            return f"{self._get_name()}({''.join(extra)})"
        return f"{self._get_name()}(\n  " + "\n  ".join(extra + inside) + "\n)"


class OptimizedModule(Optimized, Module):  # pyright: ignore[reportIncompatibleVariableOverride] - `training`
    """A module around another one, `_orig_mod`, that runs as XLA programs.  `xgrad.compile(module)` makes it.

    It has the very same parameters, so an optimizer takes them, and another module takes it as a part; in its state
    they have PyTorch's names.  Other attributes are read from and set on the original module.  Its hooks are part of
    the programs, the hooks of this module run around them.  A copy, also one by pickle, compiles its own programs.
    `metrics()`, `reset()`, `lower()`, `as_text()`, `cost_analysis()`, `memory_analysis()`: see `xgrad.compile`.
    (PyTorch: torch._dynamo.OptimizedModule.)

    >>> import xgrad
    >>> net = xgrad.nn.Sequential(xgrad.nn.Linear(2, 1))
    >>> compiled = xgrad.compile(net)
    >>> compiled(xgrad.ones(3, 2)).shape
    xgrad.Size([3, 1])
    >>> list(compiled.state_dict())
    ['_orig_mod.0.weight', '_orig_mod.0.bias']
    >>> compiled.metrics().traces
    1
    """


def _indented(text: str) -> str:
    """Indent all lines but the first by two spaces."""
    return text.replace("\n", "\n  ")


_HOLDERS: tuple[tuple[str, str, Any], ...] = (
    ("_parameters", "parameter", Parameter), ("_modules", "module", Module), ("_buffers", "buffer", Buffer),
)  # fmt: skip
_SHOWN = {"parameter": "parameter", "module": "child module", "buffer": "buffer"}
_EXPECTED = {
    "parameter": "xgrad.nn.Parameter or None", "module": "xgrad.nn.Module or None",
    "buffer": "xgrad.nn.Buffer, xgrad.Tensor or None",
}  # fmt: skip
