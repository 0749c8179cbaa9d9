"""safetensors files: equal to those of safetensors.torch, checked as a whole, and loaded wholly or not at all."""

import json
import os
import random
import struct

import jax
import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch

import xgrad
from xgrad.interop import safetensors as ours
from xgrad.interop.torch import from_torch, to_torch

from .test_torch import DTYPES, narrow, refused

KNOWN = [name for name in DTYPES if name != "complex128"]


def tensors(T):
    made = {name: torch.tensor([[0, 1, 1], [1, 0, 1]]).to(getattr(torch, name)) for name in KNOWN}
    made |= {"no dimension": torch.tensor(2.5), "empty": torch.zeros(0, 3)}
    return made if T is torch else from_torch(made, copy=True)


def test_files_are_those_of_torch(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    ours.save_file(tensors(xgrad), here, {"made": "here"})
    safetensors.torch.save_file(tensors(torch), there, {"made": "here"})
    assert here.read_bytes() == there.read_bytes()
    assert ours.save(tensors(xgrad)) == safetensors.torch.save(tensors(torch))
    assert ours.metadata(here) == {"made": "here"}
    assert ours.metadata(here) is not ours.metadata(here)
    assert os.listdir(tmp_path) in (["here", "there"], ["there", "here"])


def test_files_of_torch_are_read(tmp_path):
    path = tmp_path / "there"
    safetensors.torch.save_file(tensors(torch), path)
    for loaded in (ours.load_file(path), ours.load(path.read_bytes())):
        for name, there in tensors(torch).items():
            assert (
                to_torch(loaded[name])
                .view(torch.uint8 if there.ndim else there.dtype)
                .equal(there.view(torch.uint8 if there.ndim else there.dtype))
            )
            assert loaded[name].dtype == tensors(xgrad)[name].dtype
        assert set(loaded) == set(tensors(torch))


def test_what_was_loaded_is_free_of_the_file(tmp_path):
    path = tmp_path / "x"
    for padding in range(0, 64, 8):  # one of them puts the data where JAX could use them in place
        ours.save_file({"x": xgrad.ones(1000)}, path, {"padding": "." * padding})
        x = ours.load_file(path)["x"]
        with open(path, "r+b") as file:
            file.write(bytes(path.stat().st_size))
        assert x.tolist() == [1.0] * 1000


def test_views_are_saved_as_what_they_show():
    base = xgrad.arange(6.0).reshape(2, 3)
    saved = {"t": base.t()[1:]}
    assert ours.load(ours.save(saved))["t"].tolist() == base.t()[1:].tolist()


def tied(T):
    class Tied(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.decoder = T.nn.Parameter(T.ones(2, 2))
            self.encoder = self.decoder
            self.alone = T.nn.Parameter(T.zeros(1))

    return Tied()


def test_shared_tensors_are_refused_and_a_model_is_saved_without_twins(tmp_path):
    for T, library in ((torch, safetensors.torch), (xgrad, ours)):
        with pytest.raises(RuntimeError, match=r"Some tensors share memory, .*(decoder|encoder)"):
            library.save_file(dict(tied(T).state_dict()), tmp_path / "no")
        base = T.ones(4, 4)
        library.save({"a": base[:2].clone(), "b": base[2]})
        library.save({"a": base[:2], "b": base[2:]})  # parts that have nothing in common
        with pytest.raises(RuntimeError, match="Some tensors share memory"):
            library.save({"a": base[:3], "b": base[2:]})
        library.save_model(tied(T), tmp_path / T.__name__)
    assert not (tmp_path / "no").exists()
    assert (tmp_path / "torch").read_bytes() == (tmp_path / "xgrad").read_bytes()
    assert ours.metadata(tmp_path / "xgrad") == {"encoder": "decoder"}
    model = tied(xgrad)
    with xgrad.no_grad():
        model.decoder.zero_()
    kept = model.encoder
    assert repr(ours.load_into(model, tmp_path / "torch")) == "<All keys matched successfully>"
    assert model.encoder is model.decoder is kept
    assert kept.tolist() == [[1, 1], [1, 1]]
    half = xgrad.nn.Module()
    half.a, half.b = (xgrad.nn.Buffer(part) for part in (base[:3], base[1:]))
    with pytest.raises(RuntimeError, match=r"none of the tensors \['a', 'b'\], which share memory, covers"):
        ours.save_model(half, tmp_path / "half")


def test_loading_changes_values_and_nothing_else(tmp_path):
    one, other = xgrad.nn.Linear(2, 3), xgrad.nn.Linear(2, 3)
    ours.save_file(one.state_dict(), tmp_path / "x")
    weight, row, version = other.weight, other.weight[0], other.weight._version
    storage = other.weight.storage_id
    assert ours.load_into(other, tmp_path / "x") == ([], [])
    assert other.weight is weight
    assert weight.requires_grad
    assert weight.is_leaf
    assert weight.storage_id == storage
    assert weight._version > version
    assert row.tolist() == one.weight[0].tolist()
    state = xgrad.nn.Linear(2, 3).state_dict()
    ours.load_into(state, tmp_path / "x")
    assert state["weight"].tolist() == one.weight.tolist()


def test_all_that_does_not_fit_is_listed_and_nothing_is_changed(tmp_path):
    path = tmp_path / "bad"
    ours.save_file({"a": xgrad.ones(2), "b": xgrad.ones(3), "c": xgrad.ones(2, dtype=xgrad.int32)}, path)
    target = {"a": xgrad.zeros(2), "b": xgrad.zeros(2), "c": xgrad.zeros(2), "d": xgrad.zeros(1)}
    del target["a"]
    target["e"] = xgrad.zeros(1)
    with pytest.raises(RuntimeError) as caught:
        ours.load_into(target, path)
    said = str(caught.value)
    assert said.startswith(f"Error(s) in loading state_dict for dict from {path}:")
    assert 'Missing key(s) in state_dict: "d", "e"' in said
    assert 'Unexpected key(s) in state_dict: "a"' in said
    assert "size mismatch for b: copying a param with shape xgrad.Size([3])" in said
    assert "dtype mismatch for c: the file has int32, the current model float32" in said
    with pytest.raises(RuntimeError, match="size mismatch for b"):
        ours.load_into(target, path, strict=False)
    assert all(t._version == 0 and not t.any() for t in target.values())
    fits = {"b": xgrad.zeros(3), "d": xgrad.zeros(1)}
    assert ours.load_into(fits, path, strict=False) == (["d"], ["a", "c"])
    assert fits["b"].tolist() == [1, 1, 1]
    with xgrad.inference_mode():
        frozen = xgrad.zeros(3)
    before = xgrad.zeros(2)
    for last in (frozen, xgrad.zeros(1).expand(3)):
        with pytest.raises(RuntimeError, match="'b'"):
            ours.load_into({"a": before, "b": last}, path, strict=False)
        assert before._version == 0


def test_of_a_state_dict_what_fits_is_loaded_before_the_error():
    """As in PyTorch; `load_into` checks everything first."""
    module = xgrad.nn.Linear(2, 3)
    with pytest.raises(RuntimeError, match="size mismatch for bias"):
        module.load_state_dict({"weight": xgrad.ones(3, 2), "bias": xgrad.ones(2)})
    assert module.weight.tolist() == [[1.0, 1.0]] * 3


def test_each_device_gets_its_part(tmp_path):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("x",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    x = xgrad.arange(8.0).reshape(4, 2).to(rows)
    ours.save_file({"x": x, "y": xgrad.ones(3)}, tmp_path / "x")
    loaded = ours.load_file(tmp_path / "x", {"x": rows, "y": "cpu:1"})
    assert loaded["x"].sharding == rows
    assert loaded["x"].tolist() == x.tolist()
    assert loaded["y"].device == xgrad.device("cpu:1")
    target = {"x": xgrad.zeros(4, 2).to(rows), "y": xgrad.zeros(3)}
    ours.load_into(target, tmp_path / "x")
    assert target["x"].sharding == rows
    assert target["x"].tolist() == x.tolist()
    with pytest.raises(xgrad.errors.PlacementError, match=r"x: 'y': .*not divisible"):
        ours.load_file(tmp_path / "x", rows)
    with pytest.raises(KeyError, match="'z'"):
        ours.load_file(tmp_path / "x", {"z": rows})


def test_64_bits_without_jax_s(tmp_path):
    path = tmp_path / "wide"
    ours.save_file({"x": xgrad.ones(2, dtype=xgrad.float64)}, path)
    label, big = ours.save({"y": xgrad.tensor([3])}), ours.save({"y": xgrad.tensor([1 << 40])})
    with narrow():
        assert ours.load_file(path)["x"].dtype == np.float32
        target = {"x": xgrad.zeros(2, dtype=xgrad.float32)}
        ours.load_into(target, path)
        assert target["x"].tolist() == [1, 1]
        with refused(), pytest.raises(xgrad.errors.DtypeDisabledError, match=r"wide: 'x': .*jax_enable_x64"):
            ours.load_file(path)
        assert ours.load(label)["y"].dtype == np.int32
        with pytest.raises(OverflowError, match=r"'y': .*does not fit into int32"):
            ours.load(big)


NOT_SAVED = {
    "dtype": (lambda: {"x": xgrad.ones(1, dtype=xgrad.complex128)}, TypeError, "'x' is of dtype complex128"),
    "sparse": (lambda: {"x": xgrad.eye(2).to_sparse()}, TypeError, "'x' is sparse"),
    "no tensor": (lambda: {"x": 3}, TypeError, "'x': expected xgrad.Tensor but got builtins.int"),
    "name": (lambda: {3: xgrad.ones(1)}, TypeError, "3 can't be the name"),
    "reserved name": (lambda: {"__metadata__": xgrad.ones(1)}, TypeError, "'__metadata__' can't be the name"),
    "no dictionary": (lambda: [xgrad.ones(1)], TypeError, "expected a dictionary of tensors"),
}


@pytest.mark.parametrize(("make", "error", "told"), NOT_SAVED.values(), ids=NOT_SAVED)
def test_what_a_file_cannot_hold_is_named_and_the_old_file_stays(make, error, told, tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"old")
    with pytest.raises(error, match=told):
        ours.save_file(make(), path)
    with pytest.raises(TypeError, match="metadata must be a dictionary of strings"):
        ours.save_file({"x": xgrad.ones(1)}, path, {"a": 1})
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["x"]


def file(header, data=b""):
    header = json.dumps(header).encode() if isinstance(header, dict) else header
    return struct.pack("<Q", len(header)) + header + data


def entry(dtype="F32", shape=(1,), offsets=(0, 4), **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets), **more}


ONE = json.dumps(entry()).encode()
HOSTILE = {
    "nothing": (b"", "not a safetensors file: it has 0 bytes"),
    "too short": (b"abc", "not a safetensors file: it has 3 bytes"),
    "header length beyond the file": (struct.pack("<Q", 1000) + b"{}", "cut off"),
    "huge header length": (struct.pack("<Q", 2**63 + 5) + b"{}", "cut off"),
    "not JSON": (file(b"xxxx"), "header is not JSON"),
    "not UTF-8": (file(b'{"\xff": 1}'), "header is not UTF-8"),
    "half a character": (file(b'{"\\ud800": 1}'), "header is not UTF-8"),
    "deep JSON": (file(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), "header is not JSON"),
    "a list": (file(b"[1]"), "must be a JSON object"),
    "a space first": (file(b" {}"), "must be a JSON object"),
    "no entry": (file({"deep.key": 3}), "'deep.key' lacks dtype"),
    "no dtype": (file({"deep.key": {"shape": [], "data_offsets": [0, 0]}}), "'deep.key' lacks dtype"),
    "overlap": (file({"a": entry(), "b": entry(offsets=(2, 6))}, b"0" * 6), "'b' overlaps the tensor before it"),
    "gap": (file({"a": entry(offsets=(4, 8))}, b"0" * 8), "'a' leaves 4 bytes before it unused"),
    "negative size": (file({"a": entry(shape=(-1,))}, b"0" * 4), "'a' has shape .-1."),
    "fraction": (file({"a": entry(shape=(1.0,))}, b"0" * 4), "'a' has shape .1.0."),
    "truth as a size": (file({"a": entry(shape=(True,))}, b"0" * 4), "'a' has shape .True."),
    "descending offsets": (file({"a": entry(offsets=(4, 0))}, b"0" * 4), "'a' has .*ascending"),
    "three offsets": (file({"a": entry(offsets=(0, 2, 4))}, b"0" * 4), "'a' has .*ascending"),
    "huge shape": (file({"a": entry(shape=(2**40, 2**40))}, b"0" * 4), "'a' of dtype .* needs"),
    "endless empty shape": (file({"a": entry(shape=(0, 2**64), offsets=(0, 0))}), "'a' has a shape that no array has"),
    "many dimensions": (file({"a": entry(shape=(1,) * 500)}, b"0" * 4), "'a' has a shape that no array has"),
    "wrong size": (file({"a": entry(shape=(2,))}, b"0" * 4), "'a' of dtype float32 and shape .2,. needs 8 bytes"),
    "cut off": (file({"a": entry(), "b": entry(offsets=(4, 8))}, b"0" * 6), "'b' ends behind the last byte"),
    "more behind": (file({"a": entry()}, b"0" * 9), "5 bytes follow the last tensor"),
    "a key twice": (file(b'{"a":' + ONE + b',"a":' + ONE + b"}", b"0" * 4), "'a' comes twice"),
    "unknown dtype": (file({"a": entry("F7")}, b"0" * 4), "'a' has dtype 'F7', .*XLA has no"),
    "a dtype of 4 bits": (file({"a": entry("F4", (2,), (0, 1))}, b"0"), "'a' has dtype 'F4'"),
    "a list as dtype": (file({"a": entry(["F32"])}, b"0" * 4), "'a' has dtype"),
    "metadata of numbers": (file({"__metadata__": {"a": 1}}), "__metadata__"),
    "a third truth": (file({"a": entry("BOOL", (2,), (0, 2))}, b"\x01\x02"), "a byte that is neither False nor True"),
}  # fmt: skip


@pytest.mark.parametrize(("data", "told"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_files_are_refused_with_file_and_key(data, told, tmp_path):
    path = tmp_path / "hostile"
    path.write_bytes(data)
    target = {"a": xgrad.zeros(2, dtype=xgrad.bool) if "neither" in told else xgrad.zeros(1)}
    with pytest.raises(ours.FileError, match=told) as caught:
        ours.load_file(path)
    assert str(path) in str(caught.value)
    with pytest.raises(ours.FileError, match=told):
        ours.load_into(target, path, strict=False)
    with pytest.raises(ours.FileError, match=told):
        ours.load(data)
    assert target["a"]._version == 0


def test_names_are_names(tmp_path):
    names = ["../../etc/passwd", "/root", "a\x00b", "", "__class__", "λ"]
    data = safetensors.torch.save({name: torch.ones(1) for name in names})
    assert set(ours.load(data)) == set(names)
    assert ours.save(ours.load(data)) == data


def test_damaged_files_are_refused_wherever_the_library_refuses_them():
    """One byte of the header changed at random: never anything else than `FileError`, and never more lenient."""
    whole = ours.save({"first.weight": xgrad.ones(2, 2), "b": xgrad.ones(3, dtype=xgrad.int16)}, {"k": "v"})
    length = int.from_bytes(whole[:8], "little")
    numbers = random.Random(0)
    taken = refused = 0
    for _ in range(3000):
        data = bytearray(whole)
        for _ in range(numbers.randint(1, 2)):
            data[numbers.randrange(8 + length)] = numbers.choice(b'{}[]",:0123456789-.ea \xff\x00F3')
        data = bytes(data[: len(data) - numbers.choice((0, 0, 0, 1, 40))])
        try:
            safetensors.deserialize(data)
            lenient = True
        except safetensors.SafetensorError:
            lenient = False
        try:
            ours.load(data)
            taken += 1
            assert lenient, data
        except ours.FileError:
            refused += 1
    assert taken > 50
    assert refused > 1000
