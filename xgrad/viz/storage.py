"""viz.storage: draws all tensors that share a tensor's memory: bases, views and how each reads it, and aliases."""

import gc
from typing import Any

from ..base.table import size
from ..tensor import Tensor
from .chains import steps_of
from .drawing import Drawing
from .names import Names, names_for
from .saved import nbytes_of, shape_of
from .scene import Box, Edge, Scene
from .text_width import shortened


def storage(x: Tensor, *, params: Any = None, direction: str = "down") -> Drawing:
    """Draw the storage of a tensor with all tensors that share it: the base, views, detached aliases.

    An arrow to the storage says by which chain a view reads the root array, a dashed one leads from a view to its base.
    The storage has a generation, which each write raises; a view that was read before the last write is stale, and
    replays its chain when it is next read.  `params` are the same as in `graph`.  Nothing is read and nothing changes.

    >>> import xgrad
    >>> x = xgrad.zeros(2, 3)
    >>> row = x[0]
    >>> _ = x.add_(1)
    >>> print(xgrad.viz.storage(x).text().splitlines()[0])
    row  [3]  not read since it was made
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"expected a tensor, but got {type(x).__name__}")
    scene = _scene(x, names_for(params, 1))
    scene.turn(direction)
    return Drawing(scene)


def sharing(x: Tensor) -> list[Tensor]:
    """Return all tensors with the storage of `x`, bases before views, `x` among them."""
    storage = x._storage
    if storage is None:
        return [x]
    found = {id(x): x}
    for holder in gc.get_referrers(storage):
        owners = [holder]
        if isinstance(holder, dict):  # the attributes of an object, where Python made a dictionary of them
            owners = [owner for owner in gc.get_referrers(holder) if getattr(owner, "__dict__", None) is holder]
        found.update((id(owner), owner) for owner in owners if isinstance(owner, Tensor))
    tensors = [tensor for tensor in found.values() if tensor._storage is storage]
    return sorted(tensors, key=lambda t: (t._view is not None, len(t._chain.steps), repr(t._chain)))


def _scene(x: Tensor, names: Names) -> Scene:
    scene = Scene()
    place: dict[int, int] = {}
    tensors = sharing(x)
    for tensor in reversed(tensors):  # views above their base
        place[id(tensor)] = scene.add(_tensor(tensor, names, tensor is x))
    storage = x._storage
    if storage is None:
        array = scene.add(
            Box("array", "storage", lines=[(f"{shape_of(x.shape, x.dtype)}  {size(nbytes_of(x))}", "plain")])
        )
        scene.edges.append(Edge(place[id(x)], array, "is"))
        scene.foot = ["no other tensor shares it: the tensor has no storage, only its array"]
        return scene
    root = storage._array
    version = 0 if x._version_counter is None else x._version
    lines = [(f"{shape_of(root.shape, root.dtype)}  {size(nbytes_of(root))}", "plain")] if root is not None else []
    lines += [(f"generation {storage.generation}, version {version}", "plain")]
    if not storage._owned:
        lines.append(("a write copies: other code has the array", "note"))
    box = scene.add(Box(f"storage {storage.id}", "storage", lines=lines))
    for tensor in reversed(tensors):
        chain = tensor._chain
        steps = shortened(" ".join(steps_of(chain)), 60) if not chain.is_root else "root"
        scene.edges.append(Edge(place[id(tensor)], box, steps))
        meta = tensor._view
        if meta is not None and id(meta.base) in place and meta.base is not tensor:
            scene.edges.append(Edge(place[id(tensor)], place[id(meta.base)], "base", dashed=True))
    stale = sum(b.kind == "stale" for b in scene.boxes)
    scene.foot = [f"{len(tensors)} {'tensor' if len(tensors) == 1 else 'tensors'}, {stale} stale"]
    return scene


def _tensor(tensor: Tensor, names: Names, asked: bool) -> Box:
    name = shortened(names.of(tensor) or ("the tensor" if asked else "a tensor"))
    lines = [(shape_of(tensor.shape, tensor.dtype), "plain")]
    kind = "tensor"
    storage = tensor._storage
    if storage is not None and not tensor._chain.is_root:
        if tensor._cache is None:
            lines.append(("not read since it was made", "note"))
        elif tensor._cache_generation == storage.generation:
            lines.append((f"read at generation {storage.generation}", "note"))
        else:
            kind = "stale"
            lines.append((f"stale: read at generation {tensor._cache_generation}", "hook"))
    meta = tensor._view
    if meta is not None:
        counter = tensor._version_counter
        if counter is not None and tensor._grad_fn is not None and meta.attr_version != counter.value:
            kind = "stale"
            lines.append((f"its grad_fn is of version {meta.attr_version}", "hook"))
    elif storage is not None and not tensor._chain.is_root:
        lines.append(("an alias without history", "note"))
    return Box("", kind, name, lines)
