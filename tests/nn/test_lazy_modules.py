"""Lazy modules: their parameters get a shape from the first batch, as in PyTorch."""

import copy
import pickle

import numpy as np
import pytest
import torch

import xgrad
from xgrad import nn
from xgrad.nn.parameter import UninitializedBuffer, UninitializedParameter

SHAPE = {1: (2, 4, 6), 2: (2, 4, 5, 6), 3: (1, 4, 3, 4, 5)}
LAYERS = [
    ("LazyLinear", (3,), {}, (5, 4)),
    ("LazyLinear", (3, False), {}, (4,)),
    *((f"Lazy{kind}{n}d", (6, 2), {"groups": 2}, SHAPE[n]) for kind in ("Conv", "ConvTranspose") for n in (1, 2, 3)),
    ("LazyConv2d", (6, 2), {"bias": False}, (4, 5, 6)),
    *((f"LazyBatchNorm{n}d", (), {}, SHAPE[n]) for n in (1, 2, 3)),
    *((f"LazyInstanceNorm{n}d", (), {}, SHAPE[n]) for n in (1, 2, 3)),
    ("LazyBatchNorm1d", (), {"affine": False, "track_running_stats": False}, SHAPE[1]),
]


@pytest.mark.parametrize(("name", "args", "options", "shape"), LAYERS, ids=lambda value: str(value).replace(" ", ""))
def test_first_batch_makes_a_lazy_module_an_ordinary_one(name, args, options, shape):
    theirs = getattr(torch.nn, name)(*args, **options)
    ours = getattr(nn, name)(*args, **options)
    assert repr(ours) == repr(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    if "affine" not in options:
        assert ours.has_uninitialized_params()
    x = np.random.RandomState(0).randn(*shape).astype(np.float32)
    theirs(torch.tensor(x))
    ours(xgrad.tensor(x))
    assert type(ours) is getattr(nn, name.removeprefix("Lazy"))
    assert repr(ours) == repr(theirs)
    assert not ours._forward_pre_hooks
    assert {k: tuple(v.shape) for k, v in ours.state_dict().items()} == {
        k: tuple(v.shape) for k, v in theirs.state_dict().items()
    }
    ours.load_state_dict({k: xgrad.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    np.testing.assert_allclose(
        ours(xgrad.tensor(x)).detach().numpy(), theirs(torch.tensor(x)).detach().numpy(), rtol=1e-4, atol=1e-5
    )


def test_parameters_stay_the_same_objects_and_are_drawn():
    layer = nn.LazyLinear(3)
    weight = layer.weight
    assert repr(weight) == "<UninitializedParameter>"
    layer(xgrad.ones(2, 4))
    assert layer.weight is weight
    assert type(weight) is xgrad.Tensor
    assert isinstance(weight, nn.Parameter)
    assert 0 < weight.abs().max() <= 0.5
    assert weight.is_leaf
    assert weight.requires_grad
    layer(xgrad.ones(2, 4)).sum().backward()
    assert weight.grad.shape == (3, 4)


@pytest.mark.parametrize(
    "use", [lambda p: p + 1, lambda p: xgrad.ones(2) @ p, lambda p: p.sum(), lambda p: p[0], lambda p: p.zero_()]
)
def test_operators_refuse_a_parameter_without_a_shape(use):
    with pytest.raises(ValueError, match="Attempted to use an uninitialized parameter"):
        use(UninitializedParameter())


def test_a_parameter_without_a_shape_has_the_rest():
    p = UninitializedParameter(dtype=xgrad.float64)
    with pytest.raises(RuntimeError, match="Can't access the shape of an uninitialized parameter or buffer"):
        p.shape
    with pytest.raises(RuntimeError, match="Can't share memory"):
        p.share_memory_()
    assert p.dtype == xgrad.float64
    assert p.is_leaf
    assert p.grad is None
    for again in (copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
        assert type(again) is UninitializedParameter
        assert again is not p
        assert again.dtype == p.dtype
    p.materialize((2, 3))
    assert p.shape == (2, 3)
    assert p.dtype == xgrad.float64
    b = UninitializedBuffer()
    assert not b.requires_grad
    b.materialize((1,), dtype=xgrad.int32)
    assert (b.dtype, type(b)) == (xgrad.int32, xgrad.Tensor)


def test_copies_and_casts_before_the_first_batch():
    layer = nn.Sequential(nn.LazyConv2d(2, 3), nn.LazyBatchNorm2d()).double()
    twin, loaded = copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))
    x = xgrad.ones(2, 3, 4, 4, dtype=xgrad.float64)
    for each in (twin, layer, loaded):
        assert each[0].weight.dtype == xgrad.float64
        assert each(x).shape == (2, 2, 2, 2)
        assert type(each[0]) is nn.Conv2d
        assert each[1].running_mean.dtype == xgrad.float64
    assert twin[0].weight is not layer[0].weight


def test_states_with_and_without_shapes():
    full, lazy = nn.Linear(4, 3), nn.LazyLinear(3)
    lazy.load_state_dict(nn.LazyLinear(3).state_dict())
    assert lazy.has_uninitialized_params()
    lazy.load_state_dict(full.state_dict())
    assert (lazy.weight == full.weight).all()
    weight = lazy.weight.clone()
    lazy(xgrad.ones(2, 4))
    assert type(lazy) is nn.Linear
    assert (lazy.weight == weight).all()
    assert lazy.in_features == 4
    with pytest.raises(RuntimeError, match="Can't access the shape"):
        full.load_state_dict(nn.LazyLinear(3).state_dict())
    lazy = nn.LazyLinear(3)
    lazy.load_state_dict(full.state_dict())
    with pytest.raises(AssertionError, match="in_features inferred from input: 5 is not equal"):
        lazy(xgrad.ones(2, 5))


def test_a_lazy_module_of_ones_own():
    class Scale(nn.modules.lazy.LazyModuleMixin, nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = UninitializedParameter()

        def initialize_parameters(self, x):
            self.factor.materialize(x.shape[-1:])
            nn.init.ones_(self.factor)

        def forward(self, x):
            return self.factor * x

    scale = Scale()
    assert scale(xgrad.ones(2, 3)).shape == (2, 3)
    assert list(scale.state_dict()) == ["factor"]

    class Forgets(Scale):
        def initialize_parameters(self, x):
            pass

    with pytest.raises(RuntimeError, match="module Forgets has not been fully initialized"):
        Forgets()(xgrad.ones(2))


def test_channels_that_groups_do_not_divide_are_refused():
    with pytest.raises(ValueError, match="out_channels must be divisible by groups"):
        nn.LazyConv1d(3, 2, groups=2)
    with pytest.raises(ValueError, match="in_channels must be divisible by groups"):
        nn.LazyConv1d(4, 2, groups=2)(xgrad.ones(1, 3, 4))
    with pytest.raises(RuntimeError, match=r"Expected 2D \(unbatched\) or 3D \(batched\) input to LazyConv1d"):
        nn.LazyConv1d(4, 2)(xgrad.ones(4))


def test_a_state_of_an_old_version_has_no_count_of_batches():
    state = nn.BatchNorm1d(2).state_dict()
    del state["num_batches_tracked"]
    layer = nn.BatchNorm1d(2)
    with pytest.raises(RuntimeError, match="num_batches_tracked"):
        layer.load_state_dict(state)
    state._metadata[""]["version"] = 1
    layer.load_state_dict(state)


def test_a_lazy_module_is_not_initialized_in_a_program():
    for compiled in (xgrad.compile, lambda f: xgrad.func.jit(f) if hasattr(xgrad.func, "jit") else xgrad.compile(f)):
        layer = nn.LazyLinear(2)
        with pytest.raises(RuntimeError, match="LazyLinear has no parameters yet"):
            compiled(lambda x, layer=layer: layer(x))(xgrad.ones(3, 4))
        assert layer.has_uninitialized_params()
        assert layer(xgrad.ones(3, 4)).shape == (3, 2)
