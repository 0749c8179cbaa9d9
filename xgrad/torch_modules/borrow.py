"""as_torch(borrow=True): runs PyTorch's own Python files over xgrad, for some modules that xgrad lacks.

`LENT` names the modules.  PyTorch itself is not imported: the files are, under their own names, and what they import is
xgrad.  A convenience for packages; nothing of xgrad depends on it.
"""

import importlib.util
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

# What may be lent, each a folder or a file of PyTorch's; a name that xgrad has stays xgrad's.
LENT = (
    "distributions", "nn.utils.parametrize", "nn.utils.parametrizations", "nn.utils.rnn",
    "nn.utils.fusion", "optim", "utils.data", "quasirandom", "_lobpcg",
)  # fmt: skip


def lend() -> None:
    """Give modules of LENT that xgrad does not have to `import torch.X`.

    Raises `ModuleNotFoundError` if PyTorch is not installed.
    """
    spec = PathFinder.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("as_torch(borrow=True) takes modules from PyTorch's files: it is not installed here")
    if not any(map(is_lender, sys.meta_path)):
        sys.meta_path.insert(1, _Lender(Path(spec.submodule_search_locations[0])))  # behind xgrad's own


def is_lender(finder: Any) -> bool:
    """Return True for the finder that `lend` puts into `sys.meta_path`."""
    return isinstance(finder, _Lender)


class _Lender(MetaPathFinder):
    """Finds the files of LENT, behind the finder of xgrad's own modules."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec of a file of PyTorch's, None if it is not lent."""
        inside = name.removeprefix("torch.")
        if not any(inside == lent or inside.startswith(f"{lent}.") for lent in LENT):
            return None
        file = self.root.joinpath(*inside.split("."))
        for candidate, folder in ((file / "__init__.py", [str(file)]), (file.with_suffix(".py"), None)):
            if candidate.exists():
                return importlib.util.spec_from_file_location(name, candidate, submodule_search_locations=folder)
        return None
