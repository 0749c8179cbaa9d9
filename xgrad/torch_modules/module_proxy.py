"""Face: a module called torch.X, which stands in `sys.modules` under `as_torch()` and finds its names in xgrad.

tables.py says which modules of xgrad a face looks into (HOMES), which names have another place (ANSWERS), and which
raise at use (REFUSED).  A name is looked up at its first use and kept.  An attribute that a
program sets stays in the face, which the next `as_torch()` uses again; a table of switches has no face, and is xgrad's
own module.
"""

import importlib
import sys
from types import FunctionType, ModuleType
from typing import Any

from ..base.missing import hint_of, public_names
from ..base.unsupported import Unsupported, UnsupportedNameError, refused
from .tables import ANSWERS, FILES, HOMES, REFUSED

# Modules of xgrad's that users may use; the others (xgrad.engine, ...) are not modules of torch's.
_SHOWN = frozenset(dir(sys.modules["xgrad"]))
_LACKING = ("a class of PyTorch's own machinery", "docs/differences.md has what takes the place of much of it.")
_ANSWERS = "xgrad.torch_modules.torch_attributes"
faces: dict[str, ModuleType] = {}  # the ones that were imported, for the next `as_torch()` too


class Face(ModuleType):
    """A module named torch.X."""

    def __init__(self, path: str, homes: tuple[ModuleType, ...], why: tuple[str, str] | None = None) -> None:
        super().__init__(f"torch.{path}".rstrip("."), (homes[0].__doc__ or "") if homes else "")
        here = self.__dict__
        here["_path"], here["_homes"], here["_why"] = path, homes, why
        here["__path__"] = []  # a package, all of whose modules the finder finds

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__") and (self._path, name) not in ANSWERS:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        found = self.__dict__[name] = self._found(name)
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        # An import of torch.autograd.gradcheck puts the module into torch.autograd: the function of its name stays.
        if isinstance(value, Face) and value.__name__ == f"{self.__name__}.{name}":
            named = (getattr(home, name, None) for home in self.__dict__["_homes"])
            value = next((found for found in named if isinstance(found, FunctionType)), value)
        super().__setattr__(name, value)

    def _found(self, name: str) -> Any:
        path = f"{self._path}.{name}".lstrip(".")
        if name == "torch":  # PyTorch's files import it, and packages take it from them
            return faces[""]
        if (answer := ANSWERS.get((self._path, name))) is not None:
            module, _, attribute = answer.partition(":")
            home = _module(module)
            return getattr(home, attribute) if attribute else _face_of(path) or home
        for home in self._homes:
            try:
                value = getattr(home, name)
            except UnsupportedNameError:  # it says why the value does not exist
                raise
            except AttributeError:
                continue
            if not isinstance(value, ModuleType) and not (isinstance(value, Unsupported) and path in REFUSED):
                return value
            if isinstance(value, ModuleType) and not value.__name__.startswith("xgrad"):
                continue  # of xgrad's own imports
            if (face := _face_of(path)) is not None:
                return face
        if self._why is not None:
            return refused(self._path, name, self._why)
        if (face := _face_of(path)) is not None:
            return face
        if name[:1].isupper() and name in public_names("" if self._path == "_C" else self._path):
            return refused(self._path, name, _LACKING)  # a class: it may stand in an annotation, or in isinstance
        text = f"module {self.__name__!r} has no attribute {name!r}: it is xgrad, which has no such name"
        raise AttributeError(f"{text}. {hint}" if (hint := hint_of(self._path, name)) else text)

    def __dir__(self) -> list[str]:
        names = {name for home in self._homes for name in dir(home) if not name.startswith("_")}
        names |= {name for path, name in ANSWERS if path == self._path} | self.__dict__.keys()
        return sorted(name for name in names if hasattr(self, name))  # not what a home imports itself


def _module(path: str) -> ModuleType:
    """Import a module of xgrad's."""
    return importlib.import_module(f"xgrad.{path}".rstrip("."))


def _found_module(path: str) -> ModuleType | None:
    try:
        return _module(path)
    except ModuleNotFoundError as error:
        if error.name is not None and f"xgrad.{path}".startswith(error.name):
            return None
        raise


def _face_of(path: str) -> Any:
    """Import torch.`path`; None if the module does not exist."""
    face = make_face(path)
    if face is not None and sys.modules.get("torch") is faces.get(""):
        return importlib.import_module(f"torch.{path}")
    return face


def _refusal(path: str) -> tuple[str, str] | None:
    """Return why the names of a module raise at use: it is in REFUSED, or below one that is."""
    while path and path not in REFUSED:
        path = path.rpartition(".")[0]
    return REFUSED.get(path)


def _pattern(path: str, table: Any) -> Any:
    """Return the entry for a path in a table that may have it as "a.*"; None if it has none."""
    if path in table:
        return table[path]
    while path:
        path = path.rpartition(".")[0]
        if path and f"{path}.*" in table:
            return table[f"{path}.*"]
    return None


def make_face(path: str) -> ModuleType | None:
    """Return the module torch.`path`, made at the first call; None if xgrad has nothing like it.

    A path is shown if it is in the tables, or is a module of xgrad's that users may use.
    """
    if path in faces:
        return faces[path]
    if path == "ops":
        return _module("torch_modules.aten").OPS
    top = path.partition(".")[0]
    homes: list[ModuleType] = []
    if path in HOMES:
        homes = [module for home in HOMES[path] if (module := _found_module(home)) is not None]
        if not homes and HOMES[path]:
            return None  # a part of xgrad that is not there
    elif _refusal(path) is None:
        if top in _SHOWN and isinstance(own := _attribute(path), ModuleType):
            homes.append(own)
        others = _pattern(path, HOMES)
        if not homes and (others is None or path not in FILES):
            return None
        homes += [module for home in others or () if (module := _found_module(home)) is not None]
        if not any(module.__name__ != _ANSWERS for module in homes):
            return None
        if homes[0].__spec__ is None:  # no file: a table of switches, which programs set
            homes[0].__dict__["__path__"] = []
            faces[path] = homes[0]
            return homes[0]
    elif top in _SHOWN and isinstance(own := _attribute(path), ModuleType):
        homes.append(own)
    faces[path] = face = Face(path, tuple(homes), _refusal(path))
    return face


def _attribute(path: str) -> Any:
    """Return xgrad.`path` by attributes and imports; None if it is not there."""
    value: Any = sys.modules["xgrad"]
    below = "xgrad"
    for name in path.split("."):
        below += f".{name}"
        try:
            value = getattr(value, name)
        except AttributeError:
            value = _found_module(below.removeprefix("xgrad."))
            if value is None:
                return None
    return value
