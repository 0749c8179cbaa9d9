"""Sequential, ModuleList, ModuleDict: modules that contain modules (PyTorch: torch/nn/modules/container.py)."""

import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .module import Module


class _Listed(Module):
    """Modules under the names "0", "1", ..."""

    def _index(self, index: Any) -> int:
        """Return an index counted from 0.  Raises `IndexError` beyond either end."""
        index, n = operator.index(index), len(self)
        if not -n <= index < n:
            raise IndexError(f"index {index} is out of range")
        return index % n

    def _keys(self) -> list[str]:
        return list(self._modules)

    def _renumber(self, modules: Iterable[Module]) -> None:
        self.__dict__["_modules"] = {str(i): module for i, module in enumerate(modules)}

    def _insert(self, index: int, module: Module) -> None:
        if not isinstance(module, Module):
            raise TypeError(f"{type(module).__name__} is not a Module subclass")
        modules = list(self)
        modules.insert(index, module)
        self._renumber(modules)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self._part(list(self._modules.items())[index])
        return self._modules[self._keys()[self._index(index)]]

    def _part(self, items: list) -> Any:
        raise NotImplementedError

    def __setitem__(self, index: Any, module: Module) -> None:
        setattr(self, self._keys()[self._index(index)], module)

    def __delitem__(self, index: Any) -> None:
        keys = self._keys()
        for key in keys[index] if isinstance(index, slice) else [keys[self._index(index)]]:
            delattr(self, key)
        self._renumber(list(self))

    def append(self, module: Module) -> Any:
        """Add a module at the end; returns this one."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        """Add modules at the end; returns this one.  Raises `TypeError` for a non-iterable."""
        if not isinstance(modules, Iterable):
            raise TypeError(f"extend should be called with an iterable, but got {type(modules).__name__}")
        for module in list(modules):
            self.append(module)
        return self

    def pop(self, index: Any) -> Any:
        """Remove the module at `index` and return it."""
        module = self[index]
        del self[index]
        return module

    def __iadd__(self, other: Any) -> Any:
        return self.extend(other)


class Sequential(_Listed):
    """Modules that are called one after the other, each with the result of the one before.

    Given as arguments or as one dictionary of names and modules.

    >>> from xgrad import nn
    >>> nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    Sequential(
      (0): Linear(in_features=2, out_features=3, bias=True)
      (1): Linear(in_features=3, out_features=1, bias=True)
    )
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        named = args[0].items() if len(args) == 1 and isinstance(args[0], Mapping) else enumerate(args)
        for name, module in named:
            self.add_module(str(name), module)

    def forward(self, input: Any) -> Any:
        """Return the result of the last module."""
        for module in self:
            input = module(input)
        return input

    def _part(self, items: list) -> Any:
        return type(self)(dict(items))

    def insert(self, index: int, module: Module) -> "Sequential":
        """Put a module before the one at `index`; returns this one.  Raises `IndexError` beyond either end."""
        if not -len(self) <= index <= len(self):
            raise IndexError(f"Index out of range: {index}")
        self._insert(index, module)
        return self

    def __add__(self, other: "Sequential") -> "Sequential":
        if not isinstance(other, Sequential):
            raise ValueError(f"add operator supports only objects of Sequential class, but {type(other)} is given.")
        return Sequential(*self, *other)

    def _times(self, factor: int) -> list[Any]:
        if not isinstance(factor, int):
            raise TypeError(f"unsupported operand type(s) for *: {type(self)} and {type(factor)}")
        if factor <= 0:
            raise ValueError(f"Non-positive multiplication factor {factor} for {type(self)}")
        return list(self) * factor

    def __mul__(self, other: int) -> "Sequential":
        """Return a Sequential that calls the same modules `other` times."""
        return Sequential(*self._times(other))

    __rmul__ = __mul__

    def __imul__(self, other: int) -> "Sequential":
        self._renumber(self._times(other))
        return self


class ModuleList(_Listed):
    """A list of modules.

    >>> from xgrad import nn
    >>> layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])
    >>> len(layers), len(list(layers.parameters()))
    (3, 6)
    """

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def _part(self, items: list) -> Any:
        return type(self)(module for _, module in items)

    def insert(self, index: int, module: Module) -> None:
        """Put a module before the one at `index`, as into a list."""
        self._insert(index, module)

    def __add__(self, other: Iterable[Module]) -> "ModuleList":
        return ModuleList([*self, *other])

    def __repr__(self) -> str:
        """Show equal modules in a row once."""
        runs: list[list] = []  # [first, last, text]
        for i, text in enumerate(map(repr, self)):
            if runs and runs[-1][2] == text:
                runs[-1][1] = i
            else:
                runs.append([i, i, text])
        if not runs:
            return f"{self._get_name()}()"
        lines = [
            f"({first}): {text}" if first == last else f"({first}-{last}): {last - first + 1} x {text}"
            for first, last, text in runs
        ]
        return f"{self._get_name()}(\n  " + "\n  ".join(line.replace("\n", "\n  ") for line in lines) + "\n)"


class ModuleDict(Module):
    """A dictionary of modules.

    >>> from xgrad import nn
    >>> nn.ModuleDict({"linear": nn.Linear(2, 1)})["linear"]
    Linear(in_features=2, out_features=1, bias=True)
    """

    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: str) -> bool:
        return key in self._modules

    def keys(self) -> Any:
        """Return the names."""
        return self._modules.keys()

    def values(self) -> Any:
        """Return the modules."""
        return self._modules.values()

    def items(self) -> Any:
        """Return the pairs (name, module)."""
        return self._modules.items()

    def clear(self) -> None:
        """Remove all modules."""
        self._modules.clear()

    def pop(self, key: str) -> Any:
        """Remove the module with that name and return it."""
        return self._modules.pop(key)

    def update(self, modules: Any) -> None:
        """Add modules of another dictionary or of pairs (name, module).  Raises `TypeError` for anything else."""
        if not isinstance(modules, Iterable):
            raise TypeError(
                "ModuleDict.update should be called with an iterable of key/value pairs, but got "
                f"{type(modules).__name__}"
            )
        pairs: Any = modules
        for name, module in pairs.items() if hasattr(pairs, "items") else pairs:
            self[name] = module
