"""Optimizer: the base class of optimizers, with parameter groups, state, hooks, checkpoints (torch/optim/optimizer.py).

An optimizer of one's own derives from it and writes `step` in tensors, under `no_grad`; the optimizers of this package,
except LBFGS, are update rules that run as compiled programs (rule.py).  Invariants: the state belongs to parameters by
identity, and dictionaries have PyTorch's layout, so that a checkpoint of one library resumes in the other.
"""

import functools
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from typing import Any, TypeAlias

from ..base.tracebacks import shorten
from ..config import state as modes
from ..engine.hooks import EVERYWHERE, Hooks, RemovableHandle, register
from ..nn.parameter import zero_grads
from ..tensor import Tensor
from . import checkpoint
from .hooks import LOAD_POST, LOAD_PRE, SAVE_POST, SAVE_PRE, STEP_POST, STEP_PRE, HookedOptimizer

ParamsT: TypeAlias = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]

_global_pre_hooks, _global_post_hooks = Hooks(), Hooks()


class _Required:
    """The default of an option that each parameter group must give."""

    def __repr__(self) -> str:
        return "<required parameter>"


required: Any = _Required()


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` before each step of any optimizer; it may return (args, kwargs)."""
    return register(_global_pre_hooks, hook, EVERYWHERE)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` after each step of any optimizer."""
    return register(_global_post_hooks, hook, EVERYWHERE)


class Optimizer(HookedOptimizer):
    """The base class of all optimizers: it holds parameter groups and what is known of each parameter.

    params: an iterable of tensors, of (name, tensor) pairs such as `module.named_parameters()`, or of dictionaries,
        each a group: {"params": ..., "lr": 0.1, ...}.  Their order must be the same in each run.
    defaults: the options of groups that don't give them.

    Groups are plain dictionaries, which may be changed at any time; `state[p]` is the dictionary of a parameter.
    Raises `ValueError` for no parameters, a tensor that is in several groups, and one that is neither a leaf nor
    retains its gradient (unless `defaults` has "differentiable"); `TypeError` for a parameter that is not a tensor.

    An optimizer of one's own:

    >>> import xgrad
    >>> class SignSGD(xgrad.optim.Optimizer):
    ...     def __init__(self, params, lr=0.1):
    ...         super().__init__(params, {"lr": lr})
    ...     @xgrad.no_grad()
    ...     def step(self, closure=None):
    ...         for group in self.param_groups:
    ...             for p in group["params"]:
    ...                 if p.grad is not None:
    ...                     p.add_(p.grad.sign(), alpha=-group["lr"])
    >>> w = xgrad.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = SignSGD([w])
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([ 0.9000, -1.9000], requires_grad=True)
    """

    # What a compiled function guards beside the attributes that the user's code names.
    __xgrad_reads__: frozenset[str] = frozenset({
        "defaults", "param_groups", "state", "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks",
    })  # fmt: skip

    OptimizerPreHook: TypeAlias = Callable[..., Any]
    OptimizerPostHook: TypeAlias = Callable[..., None]

    defaults: dict[str, Any]
    state: defaultdict[Any, Any]
    param_groups: list[dict[str, Any]]

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self._make_hooks()
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, but got "
                f"{_named(params)}"
            )
        self.state = defaultdict(dict)
        self.param_groups = []
        groups: list[Any] = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)

    def _make_hooks(self) -> None:
        super()._make_hooks()
        self._patch_step_function()

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_hooks()
        self.defaults.setdefault("differentiable", False)

    def __repr__(self) -> str:
        shown = ""
        for i, group in enumerate(self.param_groups):
            entries = [f"    {key}: {group[key]}\n" for key in sorted(group) if key != "params"]
            shown += f"\nParameter Group {i}\n{''.join(entries)}"
        return f"{type(self).__name__} ({shown})"

    # ------------------------------------------------------------ a step

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change the parameters by their gradients, once; each class has its own.

        closure: evaluates the model again, calls `backward()` and returns the loss, which `step` then returns.
        """
        raise NotImplementedError

    @staticmethod
    def profile_hook_step(func: Callable[..., Any]) -> Callable[..., Any]:
        """Return a `step` that runs the hooks around `func`."""

        @functools.wraps(func)
        def step(*args: Any, **kwargs: Any) -> Any:
            self = args[0]
            if modes.trace is not None:
                modes.trace.uses_rates(self)
            own, after = self.__dict__[STEP_PRE], self.__dict__[STEP_POST]
            recorder = modes.recorder
            name = f"Optimizer.step#{type(self).__name__}.step"
            with nullcontext() if recorder is None else recorder.block(name, None):
                for hook in [*_global_pre_hooks.values(), *own.values()] if own or _global_pre_hooks else ():
                    result = hook(self, args, kwargs)
                    if result is not None:
                        if not isinstance(result, tuple) or len(result) != 2:
                            raise RuntimeError(
                                f"{func} must return None or a tuple of (new_args, new_kwargs), but got {result}."
                            )
                        args, kwargs = result
                try:
                    out = func(*args, **kwargs)
                except BaseException as error:
                    shorten(error)
                    raise
                for hook in [*after.values(), *_global_post_hooks.values()] if after or _global_post_hooks else ():
                    hook(self, args, kwargs)
            return out

        return step

    def _has_step_hooks(self) -> bool:
        own, after = self.__dict__[STEP_PRE], self.__dict__[STEP_POST]
        return bool(own or after or _global_pre_hooks or _global_post_hooks)

    def _patch_step_function(self) -> None:
        """Put the hooks around the class's `step`, once."""
        kind = type(self)
        if not getattr(kind.step, "hooked", None):
            step: Any = self.profile_hook_step(kind.step)
            step.hooked = True
            kind.step = step

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set the gradients of all parameters to None, or, with `set_to_none=False`, to zero in place."""
        for group in self.param_groups:
            zero_grads(group["params"], set_to_none)

    # ------------------------------------------------------------ groups

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, such as the layers of a pretrained network that are trained from now on.

        param_group: {"params": tensors or (name, tensor) pairs, and any options}; the defaults fill in the others.
        """
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        if isinstance(params, (set, frozenset)):
            raise TypeError(
                "optimizer parameters need to be organized in ordered collections, but the ordering of tensors in sets "
                "will change between runs. Please use a list instead."
            )
        params = [params] if isinstance(params, Tensor) else list(params)
        names = [p[0] for p in params if isinstance(p, tuple)]
        params = [p[1] if isinstance(p, tuple) else p for p in params]
        if names and len(names) < len(params):
            raise ValueError("all optimizer params should be with/without names. Some param names are missing")
        param_group["params"] = params
        if names:
            param_group["param_names"] = names
        for p in params:
            if not isinstance(p, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {_named(p)}")
            if not self.defaults.get("differentiable") and not (p.is_leaf or p.retains_grad):
                raise ValueError("can't optimize a non-leaf Tensor")
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            param_group.setdefault(name, default)
        if len(set(map(id, params))) < len(params):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters: each step changes them as often as "
                "they are there",
                stacklevel=3,
            )
        for group in self.param_groups:
            if ("param_names" in param_group) != ("param_names" in group):
                raise ValueError(
                    "all optimizer param groups should be with/without names. cannot add param group "
                    f"{'with' if 'param_names' in param_group else 'without'} names to the optimizer"
                )
            if not set(map(id, group["params"])).isdisjoint(map(id, params)):
                raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)

    def _named_state(self) -> Iterator[tuple[Tensor | None, str, Tensor]]:
        """Yield for each tensor of the state its parameter, its name beside that, and itself."""
        for parameter, state in self.state.items():
            for name, item in state.items() if isinstance(state, dict) else ():
                if isinstance(item, Tensor):
                    yield parameter, name, item

    # ------------------------------------------------------------ checkpoints

    def state_dict(self) -> dict[str, Any]:
        """Return {"state": {number of a parameter: its state}, "param_groups": [options and numbers of parameters]}.

        The tensors are the optimizer's own: the next step changes them, so `copy.deepcopy` or save what is to be kept.

        >>> import xgrad
        >>> w = xgrad.ones(2, requires_grad=True)
        >>> xgrad.optim.SGD([w], lr=0.1).state_dict()["param_groups"][0]["params"]
        [0]
        """
        self._call_hooks(SAVE_PRE)
        return self._changed_by_hooks(SAVE_POST, checkpoint.packed(self.state, self.param_groups))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a result of `state_dict`, of this library or of PyTorch's optimizer of the same name.

        Parameters are matched by their order.  Tensors of the state are copied to the parameter's dtype and device;
        PyTorch's tensors, JAX's and NumPy's arrays may stand in their place.  Raises `ValueError` for other groups.
        """
        state_dict = self._changed_by_hooks(LOAD_PRE, dict(state_dict))
        self.__setstate__(checkpoint.unpacked(self.param_groups, state_dict))
        self._call_hooks(LOAD_POST)


def _named(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
