"""as_torch: makes `import torch` import xgrad, from its call on or within a `with` block."""

import sys
from types import ModuleType
from typing import Any, Self

from .. import overrides
from ..config import settings
from ..dispatch.tables import UNLOADED
from ..tensor import Tensor
from .borrow import is_lender, lend
from .finder import TorchFinder
from .module_proxy import faces, make_face

_active: list["as_torch"] = []  # the innermost last
_finder = TorchFinder()


def _is_torch(name: str) -> bool:
    return name in ("torch", "safetensors.torch") or name.startswith("torch.")


class as_torch:
    """From this call on, `import torch`, `torch.nn`, `torch.optim`, ... import xgrad: packages written for torch run.

    As a context manager it ends with the block: `sys.modules` is as before, and what was imported in the block stays as
    it is.  Blocks nest.  `__torch_function__` of classes is asked like `__xgrad_function__` meanwhile, and
    `torch.__version__` is PyTorch's, which xgrad follows, with "+xgrad" behind it.

    Raises `RuntimeError` if PyTorch itself is imported already; `replace=True` hides its modules until the block ends
    (those who have imported it keep it).  With `borrow=True` modules that PyTorch has in pure Python and xgrad has not
    run from an installed PyTorch's files, over xgrad: `ModuleNotFoundError` without one.

    What xgrad cannot do raises when it is used, with the alternative, and not when it is imported.

    >>> import xgrad
    >>> with xgrad.as_torch(replace=True):
    ...     import torch
    ...     from torch import nn
    ...     print(torch.__version__.endswith("+xgrad"), torch.cuda.is_available(), torch.ones(2) + 1)
    True False tensor([2., 2.])
    """

    def __init__(self, *, replace: bool = False, borrow: bool = False) -> None:
        self.hidden: dict[str, ModuleType] = {}
        if not _active:
            hidden = {name: module for name, module in sys.modules.items() if _is_torch(name)}
            if hidden and not replace:
                raise RuntimeError(
                    "xgrad.as_torch(): PyTorch itself is imported already, by this program or a package. Call "
                    "as_torch() before those imports, or as_torch(replace=True), which hides it from later imports"
                )
            self.hidden = hidden
            for name in hidden:
                del sys.modules[name]
            sys.meta_path.insert(0, _finder)
            settings.torch_names = True
            setattr(Tensor, "__torch_function__", classmethod(overrides.default_xgrad_function))  # noqa: B010
            torch: Any = make_face("")
            sys.modules["torch"] = torch
            torch.__spec__ = _finder.find_spec("torch")
            sys.modules.update({f"torch.{path}".rstrip("."): face for path, face in faces.items()})
        _active.append(self)
        if borrow:
            lend()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        _active.remove(self)
        if _active:
            _active[0].hidden = _active[0].hidden or self.hidden
            return
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not _finder and not is_lender(finder)]
        for name in [name for name in sys.modules if _is_torch(name)]:
            del sys.modules[name]
        sys.modules.update(self.hidden)
        if (safetensors := sys.modules.get("safetensors")) is not None:  # its attribute is the module, too
            vars(safetensors).pop("torch", None)
            if (theirs := self.hidden.get("safetensors.torch")) is not None:
                vars(safetensors)["torch"] = theirs
        settings.torch_names = False
        UNLOADED.clear()
        delattr(Tensor, "__torch_function__")
