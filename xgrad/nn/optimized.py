"""Optimized: a base of OptimizedModule, the result of `xgrad.compile(module)`; passes attributes to the original.

(PyTorch: torch/_dynamo/eval_frame.py.)
"""

from typing import Any


class Optimized:
    """The part of `OptimizedModule` (module.py) in which it differs from other modules."""

    _orig_mod: Any
    _modules: dict[str, Any]
    forward: Any  # a CompiledFunction

    def __init__(self, module: Any, compiled: Any) -> None:
        super().__init__()
        del self.__dict__["training"]  # the original's
        self._modules["_orig_mod"] = module
        self.__dict__["forward"] = compiled

    @property
    def training(self) -> bool:
        return self._orig_mod.training

    @training.setter
    def training(self, mode: bool) -> None:
        self._orig_mod.training = mode

    def __getattr__(self, name: str) -> Any:
        modules = self.__dict__.get("_modules") or {}
        if name in modules:
            return modules[name]
        if "_orig_mod" not in modules:  # a copy that is being made
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return getattr(modules["_orig_mod"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__ or name in _CALL:
            object.__setattr__(self, name, value)
        elif name == "_orig_mod":
            raise AttributeError("_orig_mod of a compiled module stays: compile the other one by xgrad.compile(module)")
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._orig_mod, name)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *dir(self._orig_mod)})

    def __getstate__(self) -> dict[str, Any]:
        state: Any = super().__getstate__()
        return {**state, "forward": (type(self.forward), self.forward._given)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        above: Any = super()
        above.__setstate__(state)
        kind, given = state["forward"]
        self.__dict__["forward"] = kind(self._orig_mod, *given)

    # -- looking in -----------------------------------------------------------------------------------------------

    def metrics(self) -> Any:
        """Return the numbers of calls and traces, and why each trace was needed."""
        return self.forward.metrics()

    def reset(self) -> None:
        """Forget all programs and counts."""
        self.forward.reset()

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """Return the program for these arguments as a `jax.stages.Lowered`.  Nothing is run."""
        return self.forward.lower(*args, **kwargs)

    def as_text(self, *args: Any, **kwargs: Any) -> str:
        """Return XLA's optimized program for these arguments as text."""
        return self.forward.as_text(*args, **kwargs)

    def cost_analysis(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Return XLA's estimate of the program's operations and bytes."""
        return self.forward.cost_analysis(*args, **kwargs)

    def memory_analysis(self, *args: Any, **kwargs: Any) -> Any:
        """Return the bytes that the program takes: arguments, results, temporaries."""
        return self.forward.memory_analysis(*args, **kwargs)


_CALL = frozenset(["training", "forward", "_compiled_call_impl"])
