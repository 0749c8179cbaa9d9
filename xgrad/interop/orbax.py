"""save, restore, Manager: write and read orbax checkpoints of tensors, optimizer and random state, sharded ones too.

A checkpoint from one mesh may be restored to another one.

Invariants: a checkpoint fits a tree or is refused, before its values are read; they are all read before anything is
changed.  The format is orbax's own, which orbax and Flax read, and checkpoints of theirs are read here.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jax.sharding import Sharding

from ..base import dtypes
from ..base.devices import placement_of, settled
from ..errors import DtypeDisabledError, PlacementError
from ..execution.runner import transferred
from ..tensor import from_foreign
from ._checkpoint_tree import Path, check_name, name_of, plain, saved_leaves, saved_mapped

try:
    import orbax.checkpoint as ocp
    from etils import epath  # a requirement of orbax
except ImportError as _error:
    raise ImportError('xgrad.interop.orbax needs orbax: pip install "xgrad[orbax]"') from _error

from ._checkpoint_fit import Wanted, answered, fitting, kind_of, renewed
from ._checkpoint_writes import Writes

__all__ = ["CheckpointError", "Manager", "restore", "restore_into", "save"]


class CheckpointError(RuntimeError):
    """A checkpoint that is damaged, incomplete, or none at all."""


# -- one checkpoint ---------------------------------------------------------------------------------------------------


def save(path: Any, tree: Any, *, overwrite: bool = False) -> None:
    """Write a tree to a new folder, which takes its name when it is complete.  With several processes each calls it.

    tree: dictionaries, lists, tuples and JAX's other pytrees of Tensors, arrays, numbers, strings, None and
    Generators.  Only values are saved: restoring takes classes, `requires_grad` and places from a tree like this one.

    Raises `FileExistsError` (with `overwrite`: only if it is not a checkpoint), `TypeError` and `ValueError` for a leaf
    that can't be saved, with its name.

    >>> import os, tempfile, xgrad
    >>> from xgrad.interop import orbax
    >>> model, path = xgrad.nn.Linear(2, 3), os.path.join(tempfile.mkdtemp(), "checkpoint")
    >>> state = {"model": model.state_dict(), "random": xgrad.default_generator, "epoch": 3}
    >>> orbax.save(path, state)
    >>> with xgrad.no_grad():
    ...     _ = model.weight.zero_()
    >>> state["epoch"] = 0
    >>> orbax.restore_into(path, state)
    >>> bool(model.weight.any()), state["epoch"]
    (True, 3)
    """
    where = _place(path)
    stored = plain(tree)
    with _checkpointer() as checkpointer:
        if epath.Path(where).exists() and not (overwrite and _is_checkpoint(where)):
            how = "which is not a checkpoint" if overwrite else "overwrite=True replaces a checkpoint"
            raise FileExistsError(f"{where} exists: {how}")
        checkpointer.save(where, args=ocp.args.PyTreeSave(stored), force=overwrite)


def restore(path: Any, like: Any = None, *, device: Any = None, strict: bool = True) -> Any:
    """Return the tree of a checkpoint.

    like: a tree of the same structure, whose leaves define shapes, dtypes, places (each process reads the parts of its
    devices, for any mesh that they were saved from), `requires_grad` and classes; they are not changed.
    `jax.ShapeDtypeStruct`s may stand for arrays.  Without it: nested dictionaries and lists, arrays as Tensors on
    `device` (a device or a Sharding; by default the default one).
    strict: keys that only one of the two has are errors; if False, `like`'s own leaf stays.

    Raises `FileNotFoundError`; `CheckpointError` for a damaged checkpoint; `RuntimeError`, which lists every key, for
    names, shapes and dtypes that differ from `like`'s; `OverflowError` for 64-bit integers that don't fit into 32 bits
    while JAX's 64-bit mode is off: without `like`, others and float64 become numbers of 32 bits then.

    >>> import os, tempfile, xgrad
    >>> from xgrad.interop import orbax
    >>> path = os.path.join(tempfile.mkdtemp(), "checkpoint")
    >>> orbax.save(path, {"x": xgrad.ones(2), "step": 5})
    >>> orbax.restore(path)
    {'step': 5, 'x': tensor([1., 1.])}
    >>> orbax.restore(path, {"x": xgrad.zeros(2, requires_grad=True), "step": 0})
    {'x': tensor([1., 1.], requires_grad=True), 'step': 5}
    """
    with _opened(path) as source:
        return source.restored(like, device, strict)


def restore_into(path: Any, tree: Any, *, strict: bool = True) -> None:
    """Write a checkpoint into the tensors, NumPy arrays and Generators of a tree, in place and at their placements.

    Storages, `requires_grad` and views stay, versions rise.  Numbers, strings, None and `jax.Array`s are replaced in
    their dictionaries and lists.

    Raises what `restore` raises, and `TypeError` for a leaf that would have to be replaced in another container; then
    nothing has been changed.
    """
    with _opened(path) as source:
        source.restore_into(tree, strict)


def _checkpointer() -> Any:
    return ocp.Checkpointer(ocp.PyTreeCheckpointHandler())


def _place(path: Any) -> str:
    """Return an absolute path; a bucket's address as it is."""
    path = os.fspath(path)
    return path if "://" in path else os.path.abspath(path)


class _Source:
    """A checkpoint that can be read: `read` takes orbax's arguments and returns its tree."""

    def __init__(self, name: str, metadata: Any, read: Callable[[Any], Any]) -> None:
        self.name, self.metadata, self._read = name, metadata, read
        self.saved: dict[Path, Any] = dict(saved_leaves(metadata))
        for path in self.saved:
            try:
                check_name(name_of(path))
            except ValueError as error:
                raise CheckpointError(f"{name}: {error}") from None

    def values(self, asked: dict[Path, Wanted]) -> dict[Path, Any]:
        """Return the values at these paths."""

        def item(path: Path) -> Any:
            want = asked.get(path)
            if self.saved[path] is None:
                return None
            if want is None:
                return ocp.PLACEHOLDER
            if want.sharding is None:
                return "" if want.kind == "a string" else 0
            return jax.ShapeDtypeStruct(want.shape, want.dtype, sharding=want.sharding)

        def arguments(path: Path) -> Any:
            want = asked.get(path)
            if self.saved[path] is None:
                return None
            if want is None or want.kind != "an array":
                return ocp.RestoreArgs()
            if want.sharding is None:
                return ocp.RestoreArgs(restore_type=np.ndarray)
            return ocp.ArrayRestoreArgs(sharding=want.sharding, global_shape=want.shape, dtype=want.dtype)

        if not any(want.kind != "nothing" for want in asked.values()):
            return dict.fromkeys(asked)
        request = ocp.args.PyTreeRestore(
            saved_mapped(self.metadata, item), restore_args=saved_mapped(self.metadata, arguments)
        )
        with _reading(self.name):
            tree = self._read(request)
        return {path: value for path, value in saved_leaves(tree) if path in asked}

    def restored(self, like: Any, device: Any, strict: bool) -> Any:
        """Return the result of `restore`."""
        if like is None:
            return self._as_saved(None if device is None else placement_of(device))
        if device is not None:
            raise ValueError("give like, whose leaves define the places, or device, but not both")
        new = answered(like, self.values(fitting(like, self.saved, self.name, strict)))
        return renewed(like, new)

    def _as_saved(self, where: Any) -> Any:
        asked = {}
        for path, metadata in self.saved.items():
            kind = kind_of(metadata)
            if kind != "an array":
                asked[path] = Wanted(kind)
                continue
            dtype = np.dtype(metadata.dtype)
            narrows = dtype in dtypes.WIDE and not dtypes.x64_enabled()
            if narrows and dtype in dtypes.INEXACT:
                _refuse_dtype(name_of(path), dtype, self.name)
            shape = tuple(metadata.shape)
            try:
                sharding = settled(where, shape)
            except PlacementError as error:
                raise PlacementError(f"{self.name}: '{name_of(path)}': {error}") from None
            spread = isinstance(sharding, Sharding) and not narrows
            asked[path] = Wanted(kind, shape, dtype, sharding if spread else None)
        values = self.values(asked)

        def leaf(path: Path) -> Any:
            value = values[path]
            if isinstance(value, np.ndarray):
                value = transferred(_narrowed(value, name_of(path), self.name), settled(where, value.shape))
            return from_foreign(value) if isinstance(value, jax.Array) else value

        return saved_mapped(self.metadata, leaf)

    def restore_into(self, tree: Any, strict: bool) -> None:
        """Do the work of `restore_into`."""
        asked = fitting(tree, self.saved, self.name, strict)
        writes = Writes(answered(tree, self.values(asked)))
        writes.plan(tree)
        writes.run()


# -- many checkpoints -------------------------------------------------------------------------------------------------


class Manager:
    """The checkpoints of a training run, by step, in a folder: orbax's `CheckpointManager` for trees of xgrad.

    `options` are `orbax.checkpoint.CheckpointManagerOptions`'s: `max_to_keep`, `save_interval_steps`,
    `best_fn`, ...  Saving goes on in the background unless `enable_async_checkpointing=False`: the tensors may be
    changed meanwhile, and the saved values are those at the call.  `manager` is orbax's own object.

    >>> import tempfile, xgrad
    >>> from xgrad.interop import orbax
    >>> x = xgrad.zeros(2)
    >>> with orbax.Manager(tempfile.mkdtemp(), max_to_keep=2) as checkpoints:
    ...     for step in range(4):
    ...         _ = checkpoints.save(step, {"x": x})
    ...         _ = x.add_(1)
    ...     checkpoints.wait_until_finished()
    ...     print(checkpoints.all_steps(), checkpoints.restore(2))
    [2, 3] {'x': tensor([2., 2.])}
    """

    def __init__(self, directory: Any, **options: Any) -> None:
        self.manager: Any = ocp.CheckpointManager(
            _place(directory),
            options=ocp.CheckpointManagerOptions(**options),
            item_handlers=ocp.PyTreeCheckpointHandler(),
        )

    def save(self, step: int, tree: Any, *, metrics: Any = None, force: bool = False) -> bool:
        """Save a tree, as `save` takes it, unless the options exclude this step.

        Returns True if it is saved: a step that exists already, or is older than the last one, is not.
        """
        step = _checked_step(step)
        return self.manager.save(step, args=ocp.args.PyTreeSave(plain(tree)), metrics=metrics, force=force)

    def restore(self, step: int | None = None, like: Any = None, *, device: Any = None, strict: bool = True) -> Any:
        """Return the tree of a step, by default of the last one, as `restore` does."""
        return self._source(step).restored(like, device, strict)

    def restore_into(self, tree: Any, step: int | None = None, *, strict: bool = True) -> None:
        """Write a step, by default the last one, into a tree, as `restore_into` does."""
        self._source(step).restore_into(tree, strict)

    def _source(self, step: int | None) -> _Source:
        self.manager.wait_until_finished()
        steps = self.all_steps()
        if step is None and not steps:
            raise FileNotFoundError(f"{self.manager.directory} has no checkpoints")
        step = max(steps) if step is None else _checked_step(step)
        if step not in steps:
            raise FileNotFoundError(f"{self.manager.directory} has no checkpoint of step {step}, but of {steps}")
        name = f"{self.manager.directory} (step {step})"
        with _reading(name):
            metadata = self.manager.item_metadata(step)
            if metadata is None:
                raise CheckpointError(f"{name} does not say what it holds: it is damaged, or no checkpoint of a tree")
            metadata = metadata.tree
        return _Source(name, metadata, lambda request: self.manager.restore(step, args=request))

    def latest_step(self) -> int | None:
        """Return the last step that was saved, None if there is none."""
        return self.manager.latest_step()

    def best_step(self) -> int | None:
        """Return the step with the best metrics, by `best_fn` of the options."""
        return self.manager.best_step()

    def all_steps(self) -> list[int]:
        """Return the saved steps that still exist, in order."""
        return sorted(self.manager.all_steps())

    def wait_until_finished(self) -> None:
        """Wait for the saves in the background, and raise their errors."""
        self.manager.wait_until_finished()

    def close(self) -> None:
        """Wait, and release the manager's resources."""
        self.manager.close()

    def __enter__(self) -> "Manager":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()


def _checked_step(step: Any) -> int:
    if isinstance(step, bool) or not isinstance(step, (int, np.integer)):
        raise TypeError(f"a step is an integer, but got {step!r}")
    if step < 0:
        raise ValueError(f"a step is not negative, but got {step}")
    return int(step)


# -- reading ----------------------------------------------------------------------------------------------------------


def _refuse_dtype(name: str, dtype: np.dtype, what: str) -> None:
    try:
        dtypes.as_dtype(dtype)
    except DtypeDisabledError as error:
        raise DtypeDisabledError(f"{what}: '{name}': {error}") from None


def _narrowed(array: np.ndarray, name: str, what: str) -> np.ndarray:
    try:
        return dtypes.narrowed(array)
    except OverflowError as error:
        raise OverflowError(f"{what}: '{name}': {error}") from None


@contextmanager
def _opened(path: Any) -> Iterator[_Source]:
    where = _place(path)
    if not epath.Path(where).is_dir():
        raise FileNotFoundError(f"no checkpoint exists at {where}")
    with _checkpointer() as checkpointer:
        with _reading(where):
            if not _is_checkpoint(where):
                raise CheckpointError(f"{where} is not a checkpoint of a tree, or was not completed")
            metadata = checkpointer.metadata(where).item_metadata
            if metadata is None:
                raise CheckpointError(f"{where} does not say what it holds: it is damaged")
            metadata = metadata.tree
        yield _Source(where, metadata, lambda request: checkpointer.restore(where, args=request))


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Turn the many kinds of errors of orbax and its libraries, Exception itself among them, into `CheckpointError`."""
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:
        told = str(error).split("[tensorstore_spec")[0].split("See full TensorStore details")[0].strip()
        raise CheckpointError(
            f"{what} can't be read, it is damaged or incomplete: {type(error).__name__}: {told:.500}"
        ) from error


def _is_checkpoint(where: str) -> bool:
    return (epath.Path(where) / "_METADATA").exists()
