"""Write xgrad/base/torch_names.txt: PyTorch's public names by namespace, which errors for missing names look up.

Run it with the torch that xgrad is compared with: `python scripts/make_torch_names.py`.
"""

import importlib
import types
from pathlib import Path
from typing import Any

# fmt: off
NAMESPACES = [
    "torch", "nn", "nn.functional", "nn.utils", "nn.utils.rnn", "nn.utils.parametrize", "nn.utils.parametrizations",
    "nn.init", "nn.parameter", "nn.attention", "optim", "optim.lr_scheduler", "optim.swa_utils", "autograd",
    "autograd.profiler", "autograd.forward_ad", "autograd.functional", "autograd.graph", "cuda", "cuda.amp", "cpu",
    "mps", "xpu", "accelerator", "backends", "backends.cuda", "backends.cudnn", "backends.mps", "backends.mkl",
    "utils", "utils.data", "utils.checkpoint", "utils.dlpack", "amp", "fft", "special", "linalg", "func", "random",
    "distributed", "distributions", "jit", "onnx", "hub", "fx", "sparse", "masked", "signal", "signal.windows",
    "profiler", "testing", "overrides", "library", "compiler", "export", "nested", "multiprocessing",
    "serialization",
]
# fmt: on


def names(module: Any) -> list[str]:
    """Return a module's public names: `__all__`, or what is defined in torch; submodules too."""
    own = {n for n in dir(module) if not n.startswith("_")}
    found = set(getattr(module, "__all__", ()))
    for name in own - found:
        value = getattr(module, name)
        home = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", "") or ""
        if home.startswith("torch") and (isinstance(value, types.ModuleType) or not hasattr(module, "__all__")):
            found.add(name)
    return sorted(n for n in found if not n.startswith("_") and len(n) > 1 and n not in ("torch", "Tensor"))


def main() -> None:
    lines = []
    for space in NAMESPACES:
        module = importlib.import_module("torch" if space == "torch" else f"torch.{space}")
        lines.append(f"{'' if space == 'torch' else space}: {' '.join(names(module))}\n")
    Path(__file__).parents[1].joinpath("xgrad", "base", "torch_names.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
