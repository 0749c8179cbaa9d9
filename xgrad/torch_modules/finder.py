"""TorchFinder: gives `import torch.X` xgrad's modules, and tells packaging tools that torch is installed."""

from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import Distribution, DistributionFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from .module_proxy import make_face
from .torch_attributes import VERSION


class _Loader(Loader):
    def __init__(self, face: ModuleType) -> None:
        self.face = face

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self.face

    def exec_module(self, module: ModuleType) -> None: ...


class _WithOperators(Loader):
    """Loads torchvision.extension, and has its library's operators be xgrad's: torchvision asks for it before calls.

    `_has_ops()` stays False: then torchvision runs roi_align in Python, and registers no formulas of C++.
    """

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        import_module("xgrad.torch_modules.torchvision_operators")
        vars(module)["_assert_has_ops"] = lambda: None


class _Torch(Distribution):
    """The distribution that `importlib.metadata.version("torch")` reads."""

    def read_text(self, filename: str) -> str | None:
        if filename == "METADATA":
            return f"Metadata-Version: 2.1\nName: torch\nVersion: {VERSION}\n"
        return None

    def locate_file(self, path: Any) -> Any:
        return Path(path)


def _safetensors() -> ModuleType:
    """Return a module with the functions of safetensors.torch, for xgrad's tensors."""
    ours = import_module("xgrad.interop.safetensors")
    module = ModuleType("safetensors.torch", "The functions of safetensors.torch, for xgrad's tensors.")

    def save_file(tensors: Any, filename: Any, metadata: Any = None) -> None:
        ours.save_file(tensors, filename, metadata)

    def load_file(filename: Any, device: Any = None) -> Any:
        return ours.load_file(filename, device)

    def save_model(model: Any, filename: Any, metadata: Any = None, force_contiguous: bool = True) -> None:
        ours.save_model(model, filename, metadata)

    def load_model(model: Any, filename: Any, strict: bool = True, device: Any = "cpu") -> tuple[Any, Any]:
        missing, unexpected = ours.load_into(model, filename, strict, cast=True)  # wherever its tensors are
        return {*missing}, unexpected

    vars(module).update(
        load=ours.load, load_file=load_file, load_model=load_model, save=ours.save, save_file=save_file,
        save_model=save_model, safe_open=import_module("safetensors").safe_open,
        storage_ptr=lambda tensor: tensor.untyped_storage().data_ptr(),
        storage_size=lambda tensor: tensor.untyped_storage().nbytes(),
    )  # fmt: skip
    return module


class TorchFinder(DistributionFinder):
    """Finds modules named torch and torch.X, safetensors.torch, whose own file reads memory at `data_ptr()`, and
    torchvision.extension, whose library is in C++."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec of a module of torch's that xgrad has; None for all others."""
        if name == "safetensors.torch":
            return ModuleSpec(name, _Loader(_safetensors()), origin="xgrad")
        if name == "torchvision.extension" and (spec := PathFinder.find_spec(name, path)) is not None:
            spec.loader = _WithOperators(spec.loader)
            return spec
        if name != "torch" and not name.startswith("torch."):
            return None
        face = make_face(name[6:])
        return None if face is None else ModuleSpec(name, _Loader(face), origin="xgrad", is_package=True)

    def find_distributions(self, context: Any = None) -> Iterator[Distribution]:
        """Yield torch's metadata, if they are asked for by name."""
        if context is not None and context.name == "torch":
            yield _Torch()
