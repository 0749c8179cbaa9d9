"""Names of PyTorch's that can be imported, asked about with `isinstance` and inherited from, and raise at use.

Packages import such names at their top, and use them in a branch that most programs never reach.
"""

from typing import Any

from ..base.unsupported import explained


class Refused(type):
    """The class of these names: a class, so that `isinstance(x, name)` is False and `class X(name)` is not an error."""

    _place: str
    _why: tuple[str, str]

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(explained(cls._place, cls.__name__, cls._why))

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = refused(f"{cls._place}.{cls.__name__}".lstrip("."), name, cls._why)
        setattr(cls, name, made)
        return made

    def __repr__(cls) -> str:
        return f"<{'.'.join(filter(None, ('xgrad', cls._place, cls.__name__)))}: not supported>"


def refused(place: str, name: str, why: tuple[str, str]) -> Any:
    """Return an object for `name` of the namespace `place`, which raises `NotImplementedError` when it is called.

    `why` is (the reason, what to use instead).
    """
    return Refused(name, (), {"_place": place, "_why": why, "__module__": f"xgrad.{place}".rstrip(".")})
