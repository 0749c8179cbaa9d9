"""Registers hooks of one module (WithHooks, a base of Module) or of all (PyTorch: torch/nn/modules/module.py).

Each hook stands in an ordered dictionary of the module, {number: hook}; its options ("with kwargs") stand in
another dictionary under the same number.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ..engine.hooks import EVERYWHERE, RemovableHandle
from .module_hooks import ANY, GLOBAL, ModuleHook, registered


class WithHooks:
    """The base of Module that has its hooks: of forward, of backward, of saving and of loading a state."""

    _forward_hooks: Any
    _forward_hooks_with_kwargs: Any
    _forward_hooks_always_called: Any
    _forward_pre_hooks: Any
    _forward_pre_hooks_with_kwargs: Any
    _backward_hooks: Any
    _backward_pre_hooks: Any
    _is_full_backward_hook: bool | None
    _state_dict_hooks: Any
    _state_dict_pre_hooks: Any
    _load_state_dict_pre_hooks: Any
    _load_state_dict_post_hooks: Any

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, args)` before forward; it may return new args.

        With `with_kwargs`: `hook(module, args, kwargs)`, which may return (args, kwargs).
        """
        flags = {"with_kwargs": self._forward_pre_hooks_with_kwargs} if with_kwargs else {}
        return registered(self._forward_pre_hooks, hook, prepend, **flags)

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, args, output)` after forward; it may return another output.

        With `with_kwargs`: `hook(module, args, kwargs, output)`.  With `always_call`, after an error too.
        """
        flags = {"with_kwargs": self._forward_hooks_with_kwargs} if with_kwargs else {}
        if always_call:
            flags["always_call"] = self._forward_hooks_always_called
        return registered(self._forward_hooks, hook, prepend, **flags)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(module, grad_input, grad_output)` when the gradients of the module's inputs are known.

        Both are tuples, with None for a value that is not a tensor or has no gradient.  A returned tuple replaces
        grad_input.
        """
        return self._register_backward(hook, True, prepend)

    def register_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, grad_input, grad_output)` with the gradients of the node of the module's first result.

        These are the module's gradients only if it is one operator: PyTorch keeps this method for old programs;
        `register_full_backward_hook` is the one to use.
        """
        return self._register_backward(hook, False, False)

    def _register_backward(self, hook: Callable[..., Any], full: bool, prepend: bool) -> RemovableHandle:
        if self._is_full_backward_hook is (not full):
            raise RuntimeError(
                "Cannot use both regular backward hooks and full backward hooks on a single Module. Please use only "
                "one of them."
            )
        handle = registered(self._backward_hooks, hook, prepend)
        self._is_full_backward_hook = full
        return handle

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(module, grad_output)` before the module's backward; a returned tuple replaces grad_output."""
        return registered(self._backward_pre_hooks, hook, prepend)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, prefix, keep_vars)` before `state_dict` looks at this module."""
        return registered(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, state_dict, prefix, local_metadata)`, which may change the dictionary in place."""
        vars(hook)["_from_public_api"] = True
        return registered(self._state_dict_hooks, hook)

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call a hook as the public method does; the hook of the outermost module may return another dictionary."""
        if getattr(hook, "_from_public_api", False):
            raise RuntimeError(
                "Cannot register the same function as the state dict post hook that was previously registered via "
                "register_state_dict_post_hook"
            )
        return registered(self._state_dict_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call a hook before the module loads its part of a state, which it may change in place.

        `hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)`.
        """
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], with_module: bool = False
    ) -> RemovableHandle:
        return registered(self._load_state_dict_pre_hooks, ModuleHook(hook, self) if with_module else hook)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, incompatible_keys)` after the module was loaded; it may change the two lists in place."""
        return registered(self._load_state_dict_post_hooks, hook)


# -- hooks of all modules ----------------------------------------------------------------------------------------------


def _of_all(kind: str, hook: Callable[..., Any], *flags: str) -> RemovableHandle:
    return registered(
        GLOBAL[kind], hook, False, any=ANY, everywhere=EVERYWHERE, **{flag: GLOBAL[flag] for flag in flags}
    )


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, args)` before the forward of each module, before its own hooks; it may return new args."""
    return _of_all("forward_pre", hook)


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Call `hook(module, args, output)` after the forward of each module; it may return another output."""
    flags = (("with_kwargs", with_kwargs), ("always_called", always_call))
    return _of_all("forward", hook, *(flag for flag, wanted in flags if wanted))


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, grad_output)` before the backward of each module; a returned tuple replaces grad_output."""
    return _of_all("backward_pre", hook)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, grad_input, grad_output)` when the gradients of any module's inputs are known."""
    return _of_backward("backward", "old_backward", hook)


def register_module_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, grad_input, grad_output)` at the node of each module's result (`register_backward_hook`)."""
    return _of_backward("old_backward", "backward", hook)


def _of_backward(kind: str, other: str, hook: Callable[..., Any]) -> RemovableHandle:
    if GLOBAL[other]:
        raise RuntimeError(
            "Cannot use both regular backward hooks and full backward hooks as a global Module hook. Please use only "
            "one of them."
        )
    return _of_all(kind, hook)


REGISTRATION: dict[str, Any] = {kind: OrderedDict() for kind in ("parameter", "buffer", "module")}


def as_registered(kind: str, module: Any, name: str, value: Any) -> Any:
    """Return what the hooks of all modules make of a parameter, buffer or module that is being registered."""
    for hook in [*REGISTRATION[kind].values()]:
        new = hook(module, name, value)
        value = value if new is None else new
    return value


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, name, param)` when a module registers a parameter; it may return another one."""
    return registered(REGISTRATION["parameter"], hook, everywhere=EVERYWHERE)


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, name, buffer)` when a module registers a buffer; it may return another one."""
    return registered(REGISTRATION["buffer"], hook, everywhere=EVERYWHERE)


def register_module_module_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, name, submodule)` when a module registers another one; it may return another one."""
    return registered(REGISTRATION["module"], hook, everywhere=EVERYWHERE)
