"""xgrad.version: xgrad's `__version__`, and torch.version's names (cuda, hip, git_version, ...), empty here."""

import sys

__version__: str = sys.modules["xgrad"].__version__

cuda: str | None = None
hip: str | None = None
rocm: str | None = None
xpu: str | None = None
git_version: str = ""
debug: bool = False

__all__ = ["__version__", "cuda", "debug", "git_version", "hip", "rocm", "xpu"]


def __dir__() -> list[str]:
    return sorted(__all__)
