"""Checkpoints: trees come back as they were, on any mesh, wholly or not at all."""

import os
import subprocess
import sys
from collections import OrderedDict, namedtuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

import xgrad
from xgrad.interop import orbax

from .test_torch import narrow, refused

# Where a file is damaged, orbax leaves coroutines behind that it never awaits, and an event loop that is closed.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
]

Pair = namedtuple("Pair", "left right")


def tree():
    """One leaf of each kind; the values are those of `change`'s opposite."""
    parameters = {"w": jnp.arange(6.0).reshape(2, 3), "b": jnp.ones(3)}
    return OrderedDict(
        model=xgrad.nn.Linear(2, 3).state_dict(),
        optimizer={
            "state": {0: {"step": 3, "exp_avg": xgrad.arange(4.0), "none": None}, 1: {}},
            "param_groups": [{"lr": 0.1, "betas": (0.9, 0.99), "params": [0, 1], "name": "all", "nesterov": True}],
        },
        optax=optax.adamw(optax.linear_schedule(0.1, 0.0, 5)).init(parameters),
        generator=xgrad.Generator().manual_seed((1 << 63) + 5),
        pair=Pair(xgrad.ones(2, dtype=xgrad.bfloat16), (np.arange(3), [])),
        empty=xgrad.zeros(0, 3),
        scalar=xgrad.tensor(2.5),
        numbers=[1j, np.int8(3), 1 << 62, "text"],
        key=jax.random.key(3),
        leaf=xgrad.nn.Parameter(xgrad.ones(2)),
    )


def told(tree):
    """The tree as text: values, dtypes, flags and classes."""

    def leaf(x):
        if isinstance(x, xgrad.Generator):
            return x.get_state().tolist(), x.initial_seed()
        if isinstance(x, xgrad.Tensor):
            return x.tolist(), x.dtype.name, x.requires_grad, isinstance(x, xgrad.nn.Parameter)
        if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            return jax.random.key_data(x).tolist()
        return (x.tolist(), x.dtype.name, type(x).__name__) if hasattr(x, "dtype") else x

    return repr(jax.tree.map(leaf, tree, is_leaf=lambda x: isinstance(x, (xgrad.Tensor, xgrad.Generator))))


def changed(tree):
    """A tree of the same structure with other values, in place where that can be."""
    with xgrad.no_grad():
        for t in (*tree["model"].values(), tree["optimizer"]["state"][0]["exp_avg"], tree["pair"].left, tree["leaf"]):
            t.mul_(0).sub_(7)
        tree["scalar"].fill_(0)
    tree["optimizer"]["state"][0]["step"] = 0
    tree["optimizer"]["param_groups"][0].update(lr=0.7, betas=(0.0, 0.0), name="", nesterov=False)
    tree["optax"] = jax.tree.map(lambda a: a * 0 - 1, tree["optax"])
    tree["generator"].manual_seed(1)
    tree["pair"].right[0][:] = 9
    tree["numbers"][:] = [0j, np.int8(0), 0, ""]
    tree["key"] = jax.random.key(9)
    return tree


@pytest.mark.exhaustive
def test_a_tree_comes_back_as_it_was(tmp_path):
    saved = tree()
    before = told(saved)
    orbax.save(tmp_path / "x", saved)
    like = changed(tree())
    assert told(like) != before
    untouched = told(like)
    back = orbax.restore(tmp_path / "x", like)
    assert told(back) == before
    assert list(back) == list(saved)
    assert type(back["optax"]) is type(saved["optax"])
    assert told(like) == untouched
    draws = [xgrad.rand(3, generator=t["generator"]).tolist() for t in (saved, back)]
    assert draws[0] == draws[1]


@pytest.mark.exhaustive
def test_restoring_in_place_keeps_objects_storages_and_views(tmp_path):
    saved = tree()
    before = told(saved)
    orbax.save(tmp_path / "x", saved)
    target = changed(tree())
    tensor, generator, array = target["leaf"], target["generator"], target["pair"].right[0]
    view, storage, version = tensor[1:], tensor.storage_id, tensor._version
    group = target["optimizer"]["param_groups"][0]
    orbax.restore_into(tmp_path / "x", target)
    assert told(target) == before
    assert target["leaf"] is tensor
    assert tensor.storage_id == storage
    assert tensor._version > version
    assert view.tolist() == [1.0]
    assert target["generator"] is generator
    assert target["pair"].right[0] is array
    assert target["optimizer"]["param_groups"][0] is group
    (tensor * 2).sum().backward()
    assert tensor.grad.tolist() == [2, 2]


def test_without_a_tree_there_are_dictionaries_and_lists_of_tensors(tmp_path):
    orbax.save(tmp_path / "x", {"a": [xgrad.ones(2), 3], "o": Pair(xgrad.zeros(1, dtype=xgrad.bfloat16), None)})
    back = orbax.restore(tmp_path / "x", device="cpu:1")
    assert back["a"][0].device == xgrad.device("cpu:1")
    assert back["a"][0].tolist() == [1, 1]
    assert back["a"][1] == 3
    assert back["o"]["right"] is None
    assert back["o"]["left"].dtype == xgrad.bfloat16


def test_a_place_that_does_not_fit_is_named(tmp_path):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("x",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    orbax.save(tmp_path / "x", {"even": xgrad.ones(4), "odd": xgrad.ones(3)})
    with pytest.raises(xgrad.errors.PlacementError, match="'odd': dimension 0 of size 3 is not divisible"):
        orbax.restore(tmp_path / "x", device=rows)
    orbax.save(tmp_path / "y", {"even": xgrad.arange(4.0)})
    spread = orbax.restore(tmp_path / "y", device=rows)["even"]
    assert spread.sharding == rows
    assert spread.tolist() == [0, 1, 2, 3]


def test_checkpoints_of_orbax_itself_are_read_and_ours_are_read_by_it(tmp_path):
    state = optax.adam(0.1).init({"w": jnp.arange(3.0)})
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        checkpointer.save(tmp_path / "theirs", {"state": state, "params": {"w": jnp.ones(3)}})
        like = {
            "state": jax.tree.map(jnp.zeros_like, state),
            "params": {"w": xgrad.zeros(3, dtype=xgrad.float64, requires_grad=True)},
        }
        back = orbax.restore(tmp_path / "theirs", like)
        assert told(back["state"]) == told(state)
        assert told(back["params"]) == told({"w": xgrad.ones(3, dtype=xgrad.float64, requires_grad=True)})
        orbax.save(tmp_path / "ours", {"w": xgrad.ones(3)})
        arguments = ocp.args.PyTreeRestore(restore_args={"w": ocp.RestoreArgs(restore_type=np.ndarray)})
        assert checkpointer.restore(tmp_path / "ours", args=arguments)["w"].tolist() == [1, 1, 1]


def test_all_that_does_not_fit_is_listed_and_nothing_is_changed(tmp_path):
    orbax.save(tmp_path / "x", {"a": xgrad.ones(2), "b": {"c": xgrad.ones(2, 3), "n": 4}, "d": xgrad.ones(1), "s": "s"})
    target = {"a": xgrad.zeros(3), "b": {"c": xgrad.zeros(2, 3, dtype=xgrad.int32), "n": "4"}, "e": [xgrad.zeros(1)]}
    for restore in (orbax.restore_into, orbax.restore):
        with pytest.raises(RuntimeError) as caught:
            restore(tmp_path / "x", target)
        said = str(caught.value)
        assert said.startswith(f"Error(s) in loading state_dict for dict from {tmp_path / 'x'}:")
        for part in (
            'Missing key(s) in state_dict: "e.0"',
            'Unexpected key(s) in state_dict: "d", "s"',
            "size mismatch for a: copying a param with shape xgrad.Size([2]) from checkpoint, the shape in current "
            "model is xgrad.Size([3])",
            "dtype mismatch for b.c: the checkpoint has float32, the current tree int32",
            "'b.n' is a number in the checkpoint and a string here",
        ):
            assert part in said
    assert told(target) == told(
        {"a": xgrad.zeros(3), "b": {"c": xgrad.zeros(2, 3, dtype=xgrad.int32), "n": "4"}, "e": [xgrad.zeros(1)]}
    )
    some = {"d": xgrad.zeros(1), "e": [xgrad.zeros(1)], "b": {"n": 0}}
    orbax.restore_into(tmp_path / "x", some, strict=False)
    assert told(some) == told({"d": xgrad.ones(1), "e": [xgrad.zeros(1)], "b": {"n": 4}})
    with pytest.raises(RuntimeError, match="size mismatch for a"):
        orbax.restore(tmp_path / "x", target, strict=False)


def test_what_cannot_be_restored_in_place_is_named_before_anything_is_changed(tmp_path):
    orbax.save(tmp_path / "x", (xgrad.ones(2), 3))
    target = (xgrad.zeros(2), 4)
    with pytest.raises(TypeError, match="'1' can't be restored in place"):
        orbax.restore_into(tmp_path / "x", target)
    assert target[0]._version == 0
    orbax.restore_into(tmp_path / "x", (target[0], 3))
    assert target[0].tolist() == [1, 1]
    before = xgrad.zeros(2)
    orbax.save(tmp_path / "y", {"a": xgrad.ones(2), "b": xgrad.ones(3)})
    with xgrad.inference_mode():
        frozen = xgrad.zeros(3)
    for last in (frozen, xgrad.zeros(1).expand(3)):
        with pytest.raises(RuntimeError, match="'b'"):
            orbax.restore_into(tmp_path / "y", {"a": before, "b": last})
    assert before._version == 0


BAD = {
    "a module": (lambda: {"m": xgrad.nn.Linear(1, 1)}, TypeError, r"'m' is a .*Linear.*: save its state_dict\(\)"),
    "a function": (lambda: {"a": [len]}, TypeError, r"'a\.0' is a builtins.builtin_function_or_method"),
    "sparse": (lambda: {"a": xgrad.eye(2).to_sparse()}, TypeError, "'a' is a sparse tensor"),
    "text": (lambda: {"a": np.array(["x"])}, TypeError, "'a' is an array of <U1"),
    "a huge number": (lambda: {"a": 1 << 70}, OverflowError, "'a' does not fit into 64 bits"),
    "names that meet": (lambda: {"a.b": 1, "a": {"b": 2}}, ValueError, r"two leaves of the tree have the name 'a\.b'"),
    "keys that meet": (lambda: {0: 1, "0": 2}, ValueError, "two leaves of the tree have the name '0'"),
    "a path": (lambda: {"../../x": 1}, ValueError, "can't be the name of a leaf"),
    "nothing": (lambda: {"a": {}}, ValueError, "nothing to save"),
}


@pytest.mark.parametrize(("make", "error", "message"), BAD.values(), ids=BAD)
def test_what_cannot_be_saved_is_named(make, error, message, tmp_path):
    with pytest.raises(error, match=message):
        orbax.save(tmp_path / "x", make())
    assert os.listdir(tmp_path) == []


def test_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    orbax.save("x", {"a": 1})  # a relative path
    with pytest.raises(FileExistsError, match="overwrite=True"):
        orbax.save("x", {"a": 2})
    orbax.save("x", {"a": 2}, overwrite=True)
    assert orbax.restore(str(tmp_path / "x")) == {"a": 2}
    os.mkdir("mine")
    with pytest.raises(FileExistsError, match="mine exists: which is not a checkpoint"):
        orbax.save("mine", {"a": 2}, overwrite=True)
    with pytest.raises(FileNotFoundError, match=r"no checkpoint exists at .*nowhere"):
        orbax.restore("nowhere")
    with pytest.raises(orbax.CheckpointError, match="mine is not a checkpoint"):
        orbax.restore("mine")
    with pytest.raises(ValueError, match="but not both"):
        orbax.restore("x", {"a": 0}, device="cpu")


def outcome(restore, *arguments):
    """What a `CheckpointError` says, None if there is none."""
    try:
        restore(*arguments)
    except orbax.CheckpointError as error:
        return str(error)
    return None


def test_damaged_files_are_an_error_that_names_the_checkpoint(tmp_path):
    path = tmp_path / "x"
    values = {"a": xgrad.arange(400.0), "b": xgrad.ones(3)}
    orbax.save(path, values)
    target = {"a": xgrad.zeros(400), "b": xgrad.zeros(3)}
    refused = 0
    for file in sorted(f for f in path.rglob("*") if f.is_file()):
        whole = file.read_bytes()
        for damaged in (whole[: len(whole) // 2], None):
            file.unlink()
            if damaged is not None:
                file.write_bytes(damaged)
            said = outcome(orbax.restore_into, path, target)
            if said is None:  # a file that is not needed
                assert told(target) == told(values), file
                target = {"a": xgrad.zeros(400), "b": xgrad.zeros(3)}
            else:
                refused += 1
                assert str(path) in said
                assert target["a"]._version == target["b"]._version == 0
            file.write_bytes(whole)
    assert refused >= 6


def test_hostile_names_in_a_checkpoint_are_refused(tmp_path):
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        checkpointer.save(tmp_path / "x", {"../../secret": jnp.ones(3)})
    with pytest.raises(orbax.CheckpointError, match=r"'\.\./\.\./secret' can't be the name of a leaf"):
        orbax.restore(tmp_path / "x")


def test_64_bits_without_jax_s(tmp_path):
    orbax.save(tmp_path / "f", {"x": xgrad.ones(2, dtype=xgrad.float64)})
    orbax.save(tmp_path / "i", {"x": xgrad.tensor([3])})
    orbax.save(tmp_path / "big", {"x": xgrad.tensor([1 << 40])})
    with narrow():
        assert orbax.restore(tmp_path / "f")["x"].dtype == np.float32
        with refused(), pytest.raises(xgrad.errors.DtypeDisabledError, match=r"f: 'x': float64 .*jax_enable_x64"):
            orbax.restore(tmp_path / "f")
        assert orbax.restore(tmp_path / "i")["x"].dtype == np.int32
        with pytest.raises(OverflowError, match=r"big: 'x': .*does not fit"):
            orbax.restore(tmp_path / "big")


# -- many checkpoints -------------------------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_a_manager_keeps_the_values_of_the_call_while_training_goes_on(tmp_path):
    x = xgrad.zeros(1 << 20)
    with orbax.Manager(tmp_path / "run", max_to_keep=2) as checkpoints:
        with pytest.raises(FileNotFoundError, match="has no checkpoints"):
            checkpoints.restore()
        for step in range(4):
            assert checkpoints.save(step, {"x": x, "step": step})
            for _ in range(3):
                x.add_(1)
        assert checkpoints.restore(2, {"x": x, "step": 0})["x"].eq(6).all()
        assert checkpoints.all_steps() == [2, 3]
        assert checkpoints.latest_step() == 3
        assert not checkpoints.save(3, {"x": x, "step": 3})
        with pytest.raises(FileNotFoundError, match=r"run has no checkpoint of step 0, but of \[2, 3\]"):
            checkpoints.restore(0)
        for step, error in (("../../x", TypeError), (True, TypeError), (1.0, TypeError), (-1, ValueError)):
            for call in (
                lambda step=step: checkpoints.save(step, {"x": x}),
                lambda step=step: checkpoints.restore(step),
            ):
                with pytest.raises(error, match="a step is"):
                    call()
        with pytest.raises(RuntimeError, match=r"run \(step 3\):\n\tMissing key.* \"y\""):
            checkpoints.restore_into({"x": x, "step": 0, "y": x})
        state = {"x": x, "step": 0}
        checkpoints.restore_into(state)
    assert state["step"] == 3
    assert x.eq(9).all()
    with orbax.Manager(tmp_path / "run", enable_async_checkpointing=False) as again:
        assert again.latest_step() == 3
        assert again.restore()["x"].eq(9).all()


# -- other meshes -----------------------------------------------------------------------------------------------------

MESHES = """
import sys
import jax, numpy as np, xgrad
from jax.sharding import NamedSharding, PartitionSpec as P
from xgrad.interop import orbax

def sharding(shape, names, *spec):
    count = int(np.prod(shape))
    return NamedSharding(jax.sharding.Mesh(np.array(jax.devices()[:count]).reshape(shape), names), P(*spec))

def tree(w, b, m):
    return {"w": xgrad.nn.Parameter(w), "b": b, "state": [{"m": m, "step": 7}], "g": xgrad.Generator().manual_seed(3)}

values = [np.arange(64.0).reshape(8, 8), np.arange(16.0), np.ones((8, 8))]
values = [v.astype(np.float32) for v in values]
one = sharding((8,), ("data",), "data")
orbax.save(sys.argv[1], tree(*(xgrad.tensor(v, device=one) for v in values)))
rows, columns = sharding((4, 2), ("x", "y"), "x", "y"), sharding((4, 2), ("x", "y"), "y")
places = {
    "mesh (4, 2)": (rows, columns, sharding((4, 2), ("x", "y"), None, "x")),
    "one device": (jax.devices()[5],) * 3,
    "two devices": (sharding((2,), ("z",), None, "z"), sharding((2,), ("z",)), sharding((2,), ("z",), "z")),
}
for name, where in places.items():
    for in_place in (False, True):
        like = tree(*(xgrad.zeros(v.shape, device=s) for v, s in zip(values, where)))
        before = [t.sharding for t in (like["w"], like["b"], like["state"][0]["m"])]
        if in_place:
            storage, view = like["w"].storage_id, like["w"][0]
            like["g"].manual_seed(1)
            orbax.restore_into(sys.argv[1], like)
            back = like
            assert back["w"].storage_id == storage and view.tolist() == values[0][0].tolist()
        else:
            back = orbax.restore(sys.argv[1], like)
        got = [back["w"], back["b"], back["state"][0]["m"]]
        assert [t.sharding for t in got] == before, name
        for t, v in zip(got, values):
            assert t.tolist() == v.tolist(), name
        assert back["w"].requires_grad and isinstance(back["w"], xgrad.nn.Parameter) and back["state"][0]["step"] == 7
        assert back["g"].get_state().tolist() == xgrad.Generator().manual_seed(3).get_state().tolist()
        back["w"].mul(2).sum().backward()
        assert back["w"].grad.sharding == before[0]
spread = orbax.restore(sys.argv[1], {"w": jax.ShapeDtypeStruct((8, 8), np.float32, sharding=rows)}, strict=False)
assert spread["w"].sharding == rows and not isinstance(spread["w"], xgrad.Tensor)
print("done")
"""


@pytest.mark.exhaustive
def test_a_checkpoint_of_eight_devices_is_restored_onto_other_meshes(tmp_path):
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-W", "error", "-c", MESHES, str(tmp_path / "x")]
    done = subprocess.run(command, env={**os.environ, **flags}, capture_output=True, text=True)
    assert done.stdout.endswith("done\n"), done.stderr
