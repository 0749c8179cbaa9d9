"""Reads code objects, for xgrad.compile's guards: the names that the code uses, and the package that it belongs to."""

import functools
import os
import sys
import sysconfig
import types
from dis import get_instructions, opmap
from inspect import CO_VARARGS, CO_VARKEYWORDS
from itertools import pairwise
from typing import Any

_GLOBAL = opmap["LOAD_GLOBAL"]
_NAMED = {opmap[name] for name in ("LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL")}
_EXTENDED = opmap["EXTENDED_ARG"]
_IMPORT = opmap["IMPORT_NAME"]

# Code that names one of these may ask for attributes by names that are not in the code.
DYNAMIC = frozenset({
    "getattr", "hasattr", "setattr", "delattr", "vars", "dir", "__dict__", "__getattribute__", "__getstate__",
    "attrgetter", "methodcaller", "fields", "asdict", "astuple", "replace", "copy", "deepcopy", "getmembers",
})  # fmt: skip

# JAX and the libraries on it, whose functions are pure, NumPy, and the packages that these use: guards skip them.
_OURS = frozenset({
    "xgrad", "jax", "jaxlib", "numpy", "ml_dtypes", "opt_einsum", "flax", "optax", "equinox", "chex", "orbax",
    "haiku", "treescope",
})  # fmt: skip
# The modules of the standard library that print, import, or have caches of their own.
_MACHINERY = frozenset({
    "abc", "ast", "codecs", "dis", "encodings", "importlib", "inspect", "io", "linecache", "logging",
    "re", "sre_compile", "sre_constants", "sre_parse", "threading", "tokenize", "traceback", "typing", "warnings",
    "unittest", "pdb", "bdb", "cProfile", "profile", "_pytest", "pytest", "pluggy", "coverage", "zipimport",
    "etils",  # JAX opens the files of its compile cache with it
})  # fmt: skip

# The packages through which a notebook's code prints, whose objects count messages; and those that they call, which a
# function may call too: the values of widgets are traitlets.
_NOTEBOOK = frozenset({"IPython", "ipykernel", "jupyter_client", "zmq"})
_CALLED = sys.stdlib_module_names | {"tornado", "traitlets"}

LIBRARIES = tuple({sysconfig.get_path(name) + "/" for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_PACKAGES = ("/site-packages/", "/dist-packages/")


@functools.lru_cache(maxsize=4096)
def names_in(code: types.CodeType) -> frozenset[str]:
    """Return the names of globals and attributes that a code object and its nested code use."""
    found = set(code.co_names)
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            found |= names_in(const)
        elif isinstance(const, str) and const.isidentifier():  # as in getattr(self, "scale")
            found.add(const)
        elif isinstance(const, tuple):  # the keywords of a call, and literals
            found.update(item for item in const if isinstance(item, str) and item.isidentifier())
    return frozenset(found)


@functools.lru_cache(maxsize=4096)
def globals_in(code: types.CodeType) -> frozenset[str]:
    """Return the names of globals that a code object and its nested code use; all names if it calls `globals()`."""
    if not _BY_NAME.isdisjoint(code.co_names):
        return names_in(code)
    found, extended = set(), 0
    bytecode, names = code.co_code, code.co_names
    for i in range(0, len(bytecode), 2):
        kind, arg = bytecode[i], bytecode[i + 1] | extended
        extended = arg << 8 if kind == _EXTENDED else 0
        if kind == _GLOBAL:
            found.add(names[arg >> 1])  # the lowest bit is the call flag
        elif kind in _NAMED:
            found.add(names[arg])
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            found |= globals_in(const)
    return frozenset(found)


_BY_NAME = frozenset({"globals", "eval", "exec"})
_IMPORTS_BY_NAME = frozenset({"modules", "import_module", "__import__"})


@functools.lru_cache(maxsize=4096)
def imports_in(code: types.CodeType, package: str) -> frozenset[str]:
    """Return the names in `sys.modules` of the modules that a code object of `package` imports when it runs."""
    found: set[str] = set()
    if _IMPORT in code.co_code[::2] or not _IMPORTS_BY_NAME.isdisjoint(code.co_names):
        instructions = list(get_instructions(code))
        for i, one in enumerate(instructions):
            if one.opname == "IMPORT_NAME":
                levels = (before.argval for before in instructions[max(i - 2, 0) : i] if before.argval.__class__ is int)
                level = next(levels, 0)
                base = package.rsplit(".", level - 1)[0] if level > 1 else package
                found.add(".".join(filter(None, (base, one.argval))) if level else one.argval)
        if not _IMPORTS_BY_NAME.isdisjoint(code.co_names):
            texts = (const for const in code.co_consts if isinstance(const, str))
            found |= {text for text in texts if all(part.isidentifier() for part in text.split("."))}
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            found |= imports_in(const, package)
    parents = (name.split(".")[:i] for name in found for i in range(1, name.count(".") + 2))
    return frozenset(".".join(parts) for parts in parents)


def not_only_added_to(code: types.CodeType) -> set[Any]:
    """Return the names of the variables, among other values, that code uses for more than to append to them."""
    found: set[Any] = set()
    for one, following in pairwise(get_instructions(code)):
        if one.opname in ("LOAD_CLOSURE", "COPY_FREE_VARS", "MAKE_CELL"):  # a nested function, tested itself
            continue
        appended = one.opname.startswith("LOAD_") and following.opname in ("LOAD_METHOD", "LOAD_ATTR")
        if not appended or following.argval not in ("append", "extend", "add", "update", "appendleft"):
            found.update(one.argval if one.argval.__class__ is tuple else (one.argval,))
    return found


def sees_order_of_keywords(function: Any) -> bool:
    """Return True if a function may see its keywords' order: it has `**kwargs`, and does more than `kwargs["a"]`."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is None:
        return True
    if not code.co_flags & CO_VARKEYWORDS:
        return False
    name = code.co_varnames[code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & CO_VARARGS)]
    instructions = list(get_instructions(code))
    for i, one in enumerate(instructions):
        if name == one.argval or (one.argval.__class__ is tuple and name in one.argval):
            after = [instruction.opname for instruction in instructions[i + 1 : i + 3]]
            if one.opname != "LOAD_FAST" or after != ["LOAD_CONST", "BINARY_SUBSCR"]:
                return True
    return False


def _top(module: Any) -> str:
    return str(module).partition(".")[0]


@functools.lru_cache(maxsize=4096)
def _stands_in(module: Any, file: Any) -> bool:
    """Return True if the module's name is xgrad's, JAX's, NumPy's or a library's on JAX, and the file is in that."""
    top = _top(module)
    folders = getattr(sys.modules.get(top), "__path__", ()) if top in _OURS else ()
    return str(file).startswith(tuple(f"{folder}{os.sep}" for folder in folders))


def is_ours(names: dict[Any, Any]) -> bool:
    """Return True if a module, known by its globals, is xgrad's, JAX's, NumPy's or a library's on JAX.

    Its file decides, because code of a user's may bear any name; globals made for functions have only that.
    """
    module, file = names.get("__name__"), names.get("__file__")
    return _top(module) in _OURS if file is None else _stands_in(module, file)


@functools.lru_cache(maxsize=4096)
def is_our_class(kind: type[Any]) -> bool:
    """Return True for a class of xgrad, JAX, NumPy or a library on JAX: it is in its module, or has code from there."""
    found: Any = sys.modules.get(kind.__module__)
    names = getattr(found, "__dict__", {})
    for name in kind.__qualname__.split("."):
        found = getattr(found, "__dict__", {}).get(name)
    if found is kind:
        return is_ours(names)
    files = (item.__code__.co_filename for item in vars(kind).values() if item.__class__ is types.FunctionType)
    return any(_stands_in(kind.__module__, file) for file in files)


def is_notebook(module: Any) -> bool:
    """Return True for the name of a module through which a notebook prints: no result depends on its objects."""
    return _top(module) in _NOTEBOOK


def is_library(names: dict[Any, Any]) -> bool:
    """Return True if a module, known by its globals, belongs to an installed library, or to xgrad itself."""
    module, file = names.get("__name__"), str(names.get("__file__") or "")
    known = is_ours(names) or _top(module) == "builtins"
    return known or file.startswith(LIBRARIES) or any(part in file for part in _PACKAGES)


# The packages of xgrad's whose objects a function computes with; all others' have guards of their own, or no state.
STATEFUL = (
    "xgrad.distributions.", "xgrad.nn.", "xgrad.optim.lr_scheduler.", "xgrad.optim.swa_utils", "xgrad.utils.data.",
)  # fmt: skip
IGNORED, STDLIB, LOOKED_AT, READING = range(4)


def kind_of(frame: Any) -> int:
    """Return how frames.py treats a frame, by the module of its code: IGNORED, STDLIB, LOOKED_AT or READING.

    READING: code of xgrad's that reads all that objects of its packages have.
    """
    module = str(frame.f_globals.get("__name__"))
    top = _top(module)
    if is_ours(frame.f_globals):
        return READING if module.startswith(STATEFUL) else IGNORED
    if top in _MACHINERY or top in _NOTEBOOK or top.startswith("namedtuple_"):
        return IGNORED
    return STDLIB if top in _CALLED else LOOKED_AT
