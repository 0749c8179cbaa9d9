"""Legacy files of torch.save are loaded by xgrad.load: what torch reads in them, shared storages, damage, strangers."""

import collections
import io
import pickle
import struct

import numpy as np
import pytest
import torch

import xgrad
from xgrad.serialization import FileError

from .oracle import same

MAGIC, VERSION, MACHINE = 0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}


def legacy(obj, **options):
    """The bytes of a legacy file of torch's."""
    file = io.BytesIO()
    torch.save(obj, file, _use_new_zipfile_serialization=False, **options)
    return file.getvalue()


def load(data, **options):
    return xgrad.load(io.BytesIO(data), **options)


def agree(obj, **options):
    """Load what torch saved, and compare it with what torch loads."""
    data = legacy(obj, **options)
    found = load(data)
    same(found, torch.load(io.BytesIO(data)))
    return found


def test_what_torch_saved_comes_back():
    model = torch.nn.Linear(2, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    x = torch.arange(6.0)
    found = agree({
        "model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3,
        "leaf": x.clone().requires_grad_(), "own": torch.nn.Parameter(x),
        "turned": x.reshape(2, 3).t(), "scalar": torch.tensor(2), "empty": torch.empty(0, 2),
        "seen": collections.Counter([1, 1]),
    })  # fmt: skip
    assert found["leaf"].requires_grad
    assert isinstance(found["own"], xgrad.nn.Parameter)
    twin = xgrad.nn.Linear(2, 3)
    twin.load_state_dict(found["model"])
    same(twin.weight, model.weight)


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_every_dtype_and_protocol(protocol):
    names = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128 uint16"
    values = {name: torch.tensor([[0, 1, 1]]).to(getattr(torch, name)) for name in names.split()}
    found = load(legacy(values, pickle_protocol=protocol))
    for name, x in values.items():
        assert found[name].dtype == getattr(xgrad, name)
        assert np.asarray(found[name]._read()).tobytes() == x.view(torch.uint8).numpy().tobytes()


def test_tensors_that_share_a_storage_share_it_again():
    x = torch.arange(6.0)
    found = agree(
        {"rows": x.reshape(2, 3), "tail": x[4:], "every": x[::2], "twice": [x, x], "turned": x.reshape(2, 3).t()}
    )
    found["tail"].fill_(9)
    assert found["rows"].tolist() == [[0, 1, 2], [3, 9, 9]]
    assert found["turned"][2].tolist() == [2, 9]
    assert found["every"].tolist() == [0, 2, 9]
    assert found["twice"][0] is not None
    assert found["twice"][0][5].item() == 9


def test_sparse_conjugate_and_plain_values():
    z = torch.tensor([1 + 2j, 3 - 1j])
    found = load(legacy([torch.eye(2).to_sparse(), z.conj(), torch.Size([3]), torch.float32, {1, 2}, b"ab", "é", None]))
    assert found[0].to_dense().tolist() == [[1, 0], [0, 1]]
    same(found[1].resolve_conj(), z.conj().resolve_conj())
    assert found[2:] == [(3,), xgrad.float32, {1, 2}, b"ab", "é", None]


def test_files_places_and_maps(tmp_path):
    data = legacy({"x": torch.ones(2, 3), "y": torch.ones(3)})
    path = tmp_path / "model.pth"
    path.write_bytes(data)
    for options in ({}, {"mmap": True}, {"map_location": "cpu"}, {"weights_only": False}):
        assert xgrad.load(path, **options)["x"].tolist() == [[1, 1, 1]] * 2
    seen = []
    load(data, map_location=lambda storage, place: seen.append((storage.nbytes(), place)))
    assert seen == [(24, "cpu"), (12, "cpu")]


def written(value, keys, storages, version=VERSION):
    """A file by hand: `value` is pickled with persistent ids in place of `Ref` objects."""

    class Writer(pickle.Pickler):
        def persistent_id(self, obj):
            return obj.pid if isinstance(obj, Ref) else None

    file = io.BytesIO()
    for part in (MAGIC, version, MACHINE):
        pickle.dump(part, file, 2)
    Writer(file, 2).dump(value)
    pickle.dump(keys, file, 2)
    for values in storages:
        file.write(struct.pack("<q", len(values)) + values.tobytes())
    return file.getvalue()


class Ref:
    def __init__(self, key, numel, view=None, kind=torch.FloatStorage):
        self.pid = ("storage", kind, key, "cpu", numel, view)


class Dense:
    def __init__(self, *args, name="_rebuild_tensor"):
        self.args, self.function = args, getattr(torch._utils, name)

    def __reduce__(self):
        return self.function, self.args


ONE = Ref("1", 6)
WHOLE = Dense(ONE, 0, (6,), (1,))
SIX = np.arange(6, dtype=np.float32)


def test_parts_of_storages_of_the_oldest_files():
    value = [WHOLE, Dense(Ref("1", 6, ("2", 2, 4)), 1, (3,), (1,))]
    data = written(value, ["1"], [SIX])
    found = load(data)
    same(found, torch.load(io.BytesIO(data)))
    found[1].zero_()
    assert found[0].tolist() == [0, 1, 2, 0, 0, 0]


def test_text_of_python_2():
    text = io.BytesIO()
    for part in (MAGIC, VERSION, MACHINE):
        pickle.dump(part, text, 2)
    data = text.getvalue() + b"\x80\x02}U\x02\xc3\xa9K\x01s." + pickle.dumps([], 2)
    assert load(data) == {"é": 1} == torch.load(io.BytesIO(data))


LIES = {
    "a tensor outside": (lambda: written(Dense(ONE, 3, (6,), (1,)), ["1"], [SIX]), "does not lie in its"),
    "a length": (lambda: written(Dense(Ref("1", 7), 0, (6,), (1,)), ["1"], [SIX]), "6 elements, and 7 are"),
    "no storage": (lambda: written(WHOLE, [], []), "storage 1 is not there"),
    "another storage": (lambda: written(1, ["1"], [SIX]), "nothing refers to"),
    "twice": (lambda: written(WHOLE, ["1", "1"], [SIX, SIX]), "has it twice"),
    "a part": (lambda: written(Dense(Ref("1", 6, ("2", 4, 3)), 0, (3,), (1,)), ["1"], [SIX]), "a part of a storage"),
    "two kinds": (
        lambda: written([WHOLE, Dense(Ref("1", 6, kind=torch.IntStorage), 0, (6,), (1,))],
                        ["1"], [SIX]), "two kinds"),
    "version": (lambda: written(1, [], [], version=1002), "legacy files of version 1001"),
    "keys": (lambda: written(1, {}, []), "list of its storages is a dict"),
    "negative": (lambda: written(Dense(Ref("1", -6), 0, (6,), (1,)), ["1"], [SIX]), "expected a storage"),
    "a storage as a value": (lambda: written(Ref("1", 6), ["1"], [SIX]), "something that is not a value"),
}  # fmt: skip


@pytest.mark.parametrize("name", LIES)
def test_files_that_lie_are_refused(name):
    make, match = LIES[name]
    with pytest.raises((FileError, pickle.UnpicklingError), match=rf"the file.*{match}"):
        load(make())


def test_no_file_that_is_cut_off_is_loaded():
    data = legacy({"x": torch.ones(3), "y": torch.arange(2)})
    for length in range(40, len(data)):
        with pytest.raises((FileError, pickle.UnpicklingError), match="the file"):
            load(data[:length])


class Attack:
    ran = False

    def __reduce__(self):
        return _attack, ()


def _attack():
    Attack.ran = True


@pytest.mark.parametrize("weights_only", [True, False])
def test_nothing_of_a_strangers_file_runs(weights_only):
    with pytest.raises(pickle.UnpicklingError, match=r"Weights only load failed.*state_dict"):
        load(written({"a": Attack()}, [], []), weights_only=weights_only)
    with pytest.raises(pickle.UnpicklingError, match=r"Weights only load failed.*Linear"):
        load(legacy(torch.nn.Linear(1, 1)), weights_only=weights_only)
    assert not Attack.ran


def test_64_bits_become_32_without_x64():
    import jax

    with jax.enable_x64(False) if hasattr(jax, "enable_x64") else jax.experimental.disable_x64():
        assert load(legacy(torch.tensor([3, 4]))).dtype == xgrad.int32
        with pytest.raises(OverflowError, match="the file"):
            load(legacy(torch.tensor([2**40])))
