"""HookedOptimizer: registers an optimizer's hooks, around steps and checkpoints (PyTorch: torch/optim/optimizer.py)."""

from collections.abc import Callable
from typing import Any

from ..engine.hooks import Hooks, RemovableHandle, register

# The attributes that hold them.
STEP_PRE, STEP_POST = "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"
SAVE_PRE, SAVE_POST = "_optimizer_state_dict_pre_hooks", "_optimizer_state_dict_post_hooks"
LOAD_PRE, LOAD_POST = "_optimizer_load_state_dict_pre_hooks", "_optimizer_load_state_dict_post_hooks"


class HookedOptimizer:
    """The base class of optimizers with hooks."""

    def _make_hooks(self) -> None:
        for name in (STEP_PRE, STEP_POST, SAVE_PRE, SAVE_POST, LOAD_PRE, LOAD_POST):
            self.__dict__.setdefault(name, Hooks())

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` before each step; it may return (args, kwargs) in their place."""
        return self._register(STEP_PRE, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` after each step."""
        return self._register(STEP_POST, hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer)` before `state_dict` is made; with `prepend` before the other hooks."""
        return self._register(SAVE_PRE, hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` with the new dictionary; it may return another one."""
        return self._register(SAVE_POST, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` with a shallow copy before it is loaded; it may return another one."""
        return self._register(LOAD_PRE, hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer)` after a state was loaded."""
        return self._register(LOAD_POST, hook, prepend)

    def _register(self, name: str, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        hooks = self.__dict__[name]
        handle = register(hooks, hook)
        if prepend:
            others = {key: value for key, value in hooks.items() if key != handle.id}
            hooks.clear()
            hooks.update({handle.id: hook, **others})
        return handle

    def _call_hooks(self, name: str) -> None:
        for hook in [*self.__dict__[name].values()]:
            hook(self)

    def _changed_by_hooks(self, name: str, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Return a state dictionary, or what hooks return in its place."""
        for hook in [*self.__dict__[name].values()]:
            result = hook(self, state_dict)
            state_dict = state_dict if result is None else result
        return state_dict
