"""The order of interpreters: modes, sparse tensors, vmap, overrides, arrays, plain tensors."""

import jax.numpy as jnp
import numpy as np
import pytest

import xgrad
from xgrad.dispatch.operator_modes import OperatorMode, public_name


class Seen(OperatorMode):
    """Notes what it is asked about."""

    def __init__(self):
        self.names = []

    def run(self, op, args, statics):
        self.names.append(public_name(op))
        return super().run(op, args, statics)

    def write(self, op, args, statics):
        self.names.append(public_name(op) + "_")
        return super().write(op, args, statics)

    def see(self, name, tensor, make):
        self.names.append(name)
        return super().see(name, tensor, make)


class Answers:
    """A class that is no Tensor, and answers for every function."""

    @classmethod
    def __xgrad_function__(cls, func, types, args=(), kwargs=None):
        return f"override of {func.__name__}"


class Marked(xgrad.Tensor):
    """A subclass that answers for nothing by itself."""


_sine = xgrad.from_jax(jnp.sin)


def test_a_mode_is_asked_before_any_other_interpreter():
    seen = Seen()
    sparse = xgrad.eye(2).to_sparse()
    with seen:
        sparse * 2
        xgrad.vmap(lambda x: x * x)(xgrad.ones(2))
        assert xgrad.ones(2).mul(Answers()) == "override of mul"
        xgrad.ones(2) * np.ones(2, np.float32)
        xgrad.ones(2).as_subclass(Marked).exp()
    assert [name for name in seen.names if name in ("mul", "exp")] == ["mul", "mul", "mul", "mul", "exp"]


def test_a_mode_sees_operators_of_from_jax_in_every_form():
    seen = Seen()
    x = xgrad.ones(2)
    with seen:
        _sine(x)
        xgrad.vmap(_sine)(x)
        x.mul_(2)[0]
    assert seen.names == ["sin", "sin", "mul_", "getitem"]


def test_selective_checkpoints_save_what_from_jax_made():
    context = xgrad.utils.checkpoint.create_selective_checkpoint_contexts
    x = xgrad.ones(3, requires_grad=True)
    names = []

    def policy(ctx, op, *args, **kwargs):
        names.append(getattr(op, "name", getattr(op, "__name__", "")))
        return xgrad.utils.checkpoint.CheckpointPolicy.MUST_SAVE

    out = xgrad.utils.checkpoint.checkpoint(
        lambda x: _sine(x) * x, x, use_reentrant=False, context_fn=lambda: context(policy)
    )
    out.sum().backward()
    assert names[:2] == ["sin", "mul"]
    np.testing.assert_allclose(x.grad.numpy(), np.sin(1) + np.cos(1), rtol=1e-6)


def test_a_mode_is_asked_about_the_backward_only_if_it_wants_the_whole():
    for whole in (False, True):
        seen = Seen()
        seen.whole = whole
        x = xgrad.ones(2, requires_grad=True)
        y = (x * x).sum()
        with seen:
            xgrad.autograd.grad(y, x, create_graph=True)
        assert ("mul_backward" in seen.names) is whole


def test_sparse_tensors_come_before_vmap():
    sparse = xgrad.eye(2).to_sparse()
    with pytest.raises(NotImplementedError, match="mul under vmap"):
        xgrad.vmap(lambda x: sparse * x)(xgrad.ones(2))
    with pytest.raises(NotImplementedError, match="mul_ under vmap"):
        xgrad.vmap(lambda x: sparse.mul_(x))(xgrad.ones(2))


def test_vmap_comes_before_overrides():
    plain = xgrad.vmap(lambda x: x * xgrad.full((), 2.0).as_subclass(Marked))(xgrad.ones(2))
    assert type(plain) is xgrad.Tensor
    assert plain.tolist() == [2, 2]


def test_overrides_come_before_arrays():
    assert xgrad.add(np.ones(2), Answers()) == "override of add"
    marked = xgrad.ones(2).as_subclass(Marked)
    assert type(marked * np.ones(2, np.float32)) is Marked
    with xgrad.overrides.disable_overrides():
        assert type(marked * np.ones(2, np.float32)) is xgrad.Tensor
