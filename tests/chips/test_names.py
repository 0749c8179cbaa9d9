"""Names of targets: the chips that are known, their topologies, and the errors for others."""

import pickle

import pytest
from jax.sharding import PartitionSpec as P

import xgrad


def test_a_name_alone_is_one_chip():
    target = xgrad.target("tpu:v5e")
    assert (target.name, target.devices, target.platform) == ("tpu:v5e:1x1", 1, "tpu")
    assert target == xgrad.target("tpu:v5e:1x1") == xgrad.target(target)
    assert target != xgrad.target("tpu:v6e")


@pytest.mark.parametrize(
    ("name", "devices"),
    [
        ("tpu:v5e:4x4", 16),
        ("tpu:v5e:16x16", 256),
        ("tpu:v4:2x2x1", 4),
        ("tpu:v3:2x2", 8),
        ("tpu:v5p:2x2x1", 4),
        ("cuda:t4", 1),
    ],
)
def test_a_topology_says_how_many_devices(name, devices):
    assert xgrad.target(name).devices == devices


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown target 'tpu:v9'; known are tpu:v2, .*tpu:v5e.*cuda:t4"):
        xgrad.target("tpu:v9")
    with pytest.raises(ValueError, match="unknown target 'tpu'"):
        xgrad.target("tpu")
    with pytest.raises(TypeError, match="a string such as 'tpu:v5e', but got 5"):
        xgrad.target(5)


@pytest.mark.parametrize("name", ["tpu:v5e:2", "tpu:v5e:2x2x2", "tpu:v4:2x2", "tpu:v5e:0x1", "tpu:v5e:axb", "tpu:v5e:"])
def test_a_topology_that_does_not_fit_its_chip(name):
    with pytest.raises(ValueError, match=r"a topology of tpu:\w+ is \d sizes such as"):
        xgrad.target(name)


def test_a_gpu_is_one_device():
    with pytest.raises(ValueError, match="compiled for one device"):
        xgrad.target("cuda:t4:2")


def test_a_target_is_a_value():
    target = xgrad.target("tpu:v5e:2x2", {"data": 4}, {"x": P("data")})
    assert pickle.loads(pickle.dumps(target)) == target
    assert len({target, xgrad.target("tpu:v5e:2x2", {"data": 4}, {"x": P("data")}), xgrad.target("tpu:v5e:2x2")}) == 2
    with pytest.raises(AttributeError, match="cannot assign"):
        target.name = "tpu:v6e"
    assert repr(xgrad.target("tpu:v5e:2x2")) == "xgrad.target('tpu:v5e:2x2')"


def test_a_mesh_has_as_many_devices_as_the_target():
    assert xgrad.target("tpu:v5e:4x4", {"data": 8, "model": 2}).mesh.size == 16
    with pytest.raises(ValueError, match=r"has 16 devices, but the mesh \{'data': 4\} 4"):
        xgrad.target("tpu:v5e:4x4", {"data": 4})
    with pytest.raises(ValueError, match="shardings= name axes of a mesh"):
        xgrad.target("tpu:v5e:4x4", shardings={"x": P("data")})
