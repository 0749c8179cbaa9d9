"""set_warn_always: warn each time of what is warned of once (PyTorch: torch.set_warn_always)."""

from .config import settings

__all__ = ["is_warn_always_enabled", "set_warn_always"]


def set_warn_always(b: bool, /) -> None:
    """Let xgrad warn each time (True) of what it warns of once in a process (False, the default).

    Python's own filters, which show a warning once for each place, are set by `warnings.simplefilter("always")`.
    Raises `RuntimeError` for what is no bool.

    >>> import xgrad
    >>> xgrad.set_warn_always(True)
    >>> xgrad.is_warn_always_enabled()
    True
    >>> xgrad.set_warn_always(False)
    """
    if not isinstance(b, bool):
        raise RuntimeError(f"set_warn_always expects a bool, but got {type(b).__name__}")
    settings.warn_always = b


def is_warn_always_enabled() -> bool:
    """Whether xgrad warns each time of what it warns of once else."""
    return settings.warn_always
