"""GradScaler: the same scales, steps, states and errors as torch's, in eager and in compiled steps."""

import importlib
import math
import pickle
from types import SimpleNamespace

import numpy as np
import optax
import pytest
import torch

import xgrad
from xgrad.interop.optax import Optimizer

from ..oracle import array, as_torch, outcome

# What the loss is multiplied by in each step: where it is not finite the step is skipped.
FACTORS = [1.0, 1.0, math.inf, 1.0, math.nan, 1.0, 1.0, 1.0]


class SGD:
    """Python steps, for either library."""

    def __init__(self, T, params):
        self.T, self.param_groups = T, [{"params": list(params)}]

    def step(self):
        with self.T.no_grad():
            for p in self.param_groups[0]["params"]:
                if p.grad is not None:
                    p -= 0.5 * p.grad
        return "stepped"


def scaler_of(T, **options):
    return T.amp.GradScaler("cpu", init_scale=16.0, growth_interval=2, **options)


def weights(T, dtype="float32"):
    return T.tensor([1.0, -2.0], requires_grad=True, dtype=getattr(T, dtype))


@pytest.mark.parametrize("clip", [False, True])
def test_scales_and_steps_are_those_of_torch(clip):
    def program(T):
        w = weights(T)
        optimizer, scaler, seen = SGD(T, [w, weights(T)]), scaler_of(T), []
        for factor in FACTORS:
            w.grad = None
            scaler.scale((w * w).sum() * factor).backward()
            if clip:
                scaler.unscale_(optimizer)
                w.grad.clamp_(-0.25, 0.25)
            result = scaler.step(optimizer)
            scaler.update()
            seen += [result, w.detach().clone(), w.grad.clone(), scaler.get_scale(), scaler._get_growth_tracker()]
        return [*seen, scaler.state_dict()]

    as_torch(program, rtol=1e-6)


def test_lists_tuples_and_iterators_are_scaled():
    def program(T):
        scaler, x = scaler_of(T), weights(T)
        nested = scaler.scale([x, (x, [x])])
        assert type(nested) is list
        assert type(nested[1]) is tuple
        return nested, list(scaler.scale(iter([x])))

    as_torch(program)


def test_several_optimizers_share_a_scale():
    def program(T):
        a, b = weights(T), weights(T, "float64")
        one, two, scaler = SGD(T, [a]), SGD(T, [b]), scaler_of(T)
        scaler.scale((a * a).sum() * math.inf).backward()
        scaler.scale((b * b).sum()).backward()
        seen = [scaler.step(one), scaler.step(two)]
        scaler.update()
        return *seen, a.detach(), b.detach(), scaler.get_scale()

    as_torch(program, rtol=1e-6)


MISUSE = {
    "unscaled twice": lambda s, o, w: (s.unscale_(o), s.unscale_(o)),
    "unscaled after step": lambda s, o, w: (s.step(o), s.unscale_(o)),
    "stepped twice": lambda s, o, w: (s.step(o), s.step(o)),
    "closure": lambda s, o, w: s.step(o, closure=int),
    "update before step": lambda s, o, w: s.update(),
    "no gradient": lambda s, o, w: (setattr(w, "grad", None), s.step(o)),
    "scale of no tensor": lambda s, o, w: s.scale(3),
    "pickled between": lambda s, o, w: (s.unscale_(o), pickle.dumps(s)),
    "empty state": lambda s, o, w: s.load_state_dict({}),
    "new scale that requires grad": lambda s, o, w: s.update(w),
    "half": lambda s, o, w: s.step(SGD(o.T, [_half(o.T)])),
    "nothing scaled": lambda s, o, w: scaler_of(o.T).step(o),
    "nothing scaled, unscale_": lambda s, o, w: scaler_of(o.T).unscale_(o),
    "growth": lambda s, o, w: scaler_of(o.T, growth_factor=1.0),
    "backoff": lambda s, o, w: scaler_of(o.T, backoff_factor=1.0),
}


def _half(T):
    w = weights(T, "float16")
    w.grad = T.ones_like(w)
    return w


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_is_refused_in_torchs_words(name):
    def program(T):
        w = weights(T)
        scaler, optimizer = scaler_of(T), SGD(T, [w])
        scaler.scale((w * w).sum()).backward()
        return MISUSE[name](scaler, optimizer, w)

    theirs, ours = outcome(program, torch), outcome(program, xgrad)
    assert isinstance(theirs, Exception)
    assert type(ours) is type(theirs)
    assert str(ours).split()[:4] == str(theirs).split()[:4], (ours, theirs)


def test_state_passes_through_a_dictionary_and_a_pickle():
    def program(T):
        w = weights(T)
        scaler, optimizer = scaler_of(T), SGD(T, [w])
        scaler.scale((w * w).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        twin, other = pickle.loads(pickle.dumps(scaler)), scaler_of(T)
        other.load_state_dict(scaler.state_dict())
        seen = [twin.state_dict(), other.state_dict()]
        scaler.update(3.0)
        twin.scale(w)
        twin.update(T.tensor(5.0))
        return *seen, scaler.get_scale(), twin.get_scale()

    as_torch(program)


def test_a_scaler_that_is_not_enabled_does_nothing():
    def program(T):
        w = weights(T)
        scaler, optimizer = T.amp.GradScaler("cpu", enabled=False), SGD(T, [w])
        loss = (w * w).sum()
        assert scaler.scale(loss) is loss
        loss.backward()
        result = scaler.step(optimizer)
        scaler.update()
        return result, w.detach(), scaler.get_scale(), scaler.state_dict(), scaler.is_enabled()

    as_torch(program)


def test_an_optimizer_that_unscales_by_itself_is_told_scale_and_finding():
    class Fused(SGD):
        _step_supports_amp_scaling = True

        def step(self):
            (p,) = self.param_groups[0]["params"]
            return self.grad_scale.item(), self.found_inf.item(), p.grad.tolist()

    def program(T):
        seen = []
        for factor in (1.0, math.inf):
            w = weights(T)
            scaler, optimizer = scaler_of(T), Fused(T, [w])
            scaler.scale((w * w).sum() * factor).backward()
            seen.append(scaler.step(optimizer))
            scaler.update()
            assert not hasattr(optimizer, "found_inf")
        return seen

    as_torch(program)


def test_sparse_gradients_are_unscaled():
    def program(T):
        w = T.ones(3, 2, requires_grad=True)
        scaler, optimizer = scaler_of(T), SGD(T, [w])
        T.nn.functional.embedding(T.tensor([0, 2, 0]), w, sparse=True)
        scaler.scale(T.nn.functional.embedding(T.tensor([0, 2, 0]), w, sparse=True).sum()).backward()
        scaler.unscale_(optimizer)
        return w.grad.to_dense()

    as_torch(program)


@pytest.mark.one_in(2)
@pytest.mark.unverified("a compiled step that is skipped writes the same values, and counts as a write")
@pytest.mark.parametrize("compiled", [False, True])
def test_optax_steps_are_skipped_with_their_state(compiled):
    w = weights(xgrad)
    optimizer, scaler = Optimizer([w], optax.adam(0.1)), scaler_of(xgrad)

    def step(factor):
        optimizer.zero_grad()
        scaler.scale((w * w).sum() * factor).backward()
        scaler.step(optimizer)
        scaler.update()

    run = xgrad.compile(step) if compiled else step
    wanted, state = np.array([1.0, -2.0], np.float32), None
    tx = optax.adam(0.1)
    state = tx.init(wanted)
    scales = []
    for factor in FACTORS:
        run(xgrad.tensor(factor))
        scales.append(scaler.get_scale())
        if math.isfinite(factor):
            updates, state = tx.update(2 * wanted, state)
            wanted = wanted + np.asarray(updates)
        np.testing.assert_allclose(array(w.detach()), wanted, rtol=1e-5)
    assert scales == [16.0, 32.0, 16.0, 16.0, 8.0, 8.0, 16.0, 16.0]
    if compiled:
        assert run.metrics().traces <= 3


def test_a_compiled_step_of_another_optimizer_is_refused_and_changes_nothing():
    w = weights(xgrad)
    optimizer, scaler = SGD(xgrad, [w]), scaler_of(xgrad)

    def step():
        scaler.scale((w * w).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    with pytest.raises(RuntimeError, match=r"inside of xgrad.compile: .* Python runs the step of SGD"):
        xgrad.compile(step)()
    assert w.grad is None
    step()
    np.testing.assert_allclose(array(w.detach()), [0.0, 0.0])


def test_without_a_gpu_it_warns_and_does_nothing():
    with pytest.warns(UserWarning, match=r"GradScaler is enabled, but CUDA is not available.  Disabling."):
        assert not xgrad.amp.GradScaler().is_enabled()
    with pytest.raises(RuntimeError, match=r"Expected one of .* as device type, but got 'abacus'"):
        xgrad.amp.GradScaler("abacus")


@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_older_spellings_warn(place):
    def program(T):
        amp = importlib.import_module(f"{T.__name__}.{place}.amp")
        texts = []
        for make in (lambda: amp.GradScaler(enabled=False), lambda: amp.autocast(enabled=False)):
            with pytest.warns(FutureWarning) as caught:
                made = make()
            texts += [str(w.message).replace("torch", "xgrad") for w in caught]
        with made:
            pass
        if place == "cuda":
            with pytest.warns(FutureWarning):
                assert (
                    amp.custom_bwd(amp.custom_fwd(lambda ctx, x: x))(
                        SimpleNamespace(_fwd_used_autocast=False, _dtype=None), 1
                    )
                    == 1
                )
        return texts

    as_torch(program)
