"""set_warn_always: makes xgrad repeat the warnings that it gives once in a process (PyTorch: torch.set_warn_always)."""

from ..config import settings

__all__ = ["is_warn_always_enabled", "set_warn_always"]


def set_warn_always(b: bool, /) -> None:
    """Repeat the warnings that xgrad gives once in a process (True), or not (False, the default).

    Python's own filters, which show a warning once for each place, are set by `warnings.simplefilter("always")`.
    Raises `RuntimeError` unless the argument is a bool.

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
    """Return True if xgrad repeats the warnings that it otherwise gives once."""
    return settings.warn_always
