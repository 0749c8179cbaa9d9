"""Clipping, parameters as a vector, fusion, skip_init, against torch's."""

import contextlib

import pytest
import torch

import xgrad

from ...oracle import as_torch, data, same, same_error


def params(T, scale=1.0, with_none=True):
    """Parameters with gradients, the last one without."""
    made = []
    for i, shape in enumerate([(2, 2), (3,), (2, 2)]):
        p = T.nn.Parameter(data(T, shape, i))
        if not (with_none and i == 2):
            p.grad = data(T, shape, 10 + i) * scale
        made.append(p)
    return made


def grads(ps):
    return [p.grad for p in ps]


def clipped(T, *args, scale=1.0, **kwargs):
    ps = params(T, scale)
    held = ps[0].grad
    total = T.nn.utils.clip_grad_norm_(ps, *args, **kwargs)
    return total, grads(ps), held is ps[0].grad


CLIPS = {
    "norm": lambda T: clipped(T, 0.5),
    "below": lambda T: clipped(T, 100.0),
    "order 1": lambda T: clipped(T, 0.5, 1),
    "order 3.5": lambda T: clipped(T, 0.5, 3.5),
    "inf": lambda T: clipped(T, 0.1, "inf"),
    "foreach": lambda T: clipped(T, 0.5, foreach=True),
    "not finite": lambda T: clipped(T, 0.5, scale=float("inf")),
    "one tensor": lambda T: [T.nn.utils.clip_grad_norm_((p := params(T)[0]), 0.5), p.grad],
    "generator": lambda T: [ps := params(T), T.nn.utils.clip_grad_norm_((p for p in ps), 0.5), grads(ps)],
    "nothing": lambda T: float(T.nn.utils.clip_grad_norm_([], 0.5)),
    "no gradients": lambda T: float(T.nn.utils.clip_grad_norm_([T.nn.Parameter(T.ones(2))], 0.5)),
    "value": lambda T: [T.nn.utils.clip_grad_value_((ps := params(T)), 0.3), grads(ps)],
    "total norm": lambda T: T.nn.utils.get_total_norm(grads(params(T, with_none=False))),
    "with norm": lambda T: [
        T.nn.utils.clip_grads_with_norm_((ps := params(T)), 0.5, T.tensor(2.0, dtype=T.float64)), grads(ps),
    ],
    "two dtypes": lambda T: T.nn.utils.get_total_norm([T.ones(2), data(T, (3,))]),
    "a grad with a graph": lambda T: T.nn.utils.get_total_norm([data(T, (3,), requires_grad=True)]).requires_grad,
}  # fmt: skip


@pytest.mark.parametrize("program", CLIPS.values(), ids=CLIPS)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_gradients_are_clipped_as_in_torch(program):
    as_torch(program)


def with_grads(T, made):
    ps = [T.nn.Parameter(T.zeros_like(grad)) for grad in made]
    for p, grad in zip(ps, made):
        p.grad = grad
    return ps


GRADIENTS = {
    "one tensor for two": lambda T: [(g := data(T, (2, 2))), g, data(T, (3,))],
    "parts of one": lambda T: list(data(T, (2, 2)).unbind()),
    "of two dtypes": lambda T: [data(T, (2, 2)), data(T, (2, 2), 1).float(), data(T, (3,), 2).float(), data(T, (3,))],
    "half": lambda T: [data(T, (2, 2)).to(T.bfloat16), data(T, (3,)).to(T.bfloat16)],
    "complex": lambda T: [data(T, (2, 2)) * (1 + 2j), data(T, (2, 2))],
}


@pytest.mark.parametrize("how", ["eager", "lazy", "compiled"])
@pytest.mark.parametrize("made", GRADIENTS.values(), ids=GRADIENTS)
def test_gradients_of_all_kinds_are_scaled(made, how):
    def scaled(*ps):
        xgrad.nn.utils.clip_grads_with_norm_(ps, 0.5, xgrad.tensor(2.0, dtype=xgrad.float64))
        return [p.grad for p in ps]

    theirs = with_grads(torch, made(torch))
    torch.nn.utils.clip_grads_with_norm_(theirs, 0.5, torch.tensor(2.0, dtype=torch.float64))
    with xgrad.lazy() if how == "lazy" else contextlib.nullcontext():
        ps = with_grads(xgrad, made(xgrad))
        held = [p.grad for p in ps]
        found = (xgrad.compile(scaled) if how == "compiled" else scaled)(*ps)
        for ours, kept, other in zip(found, held, theirs):
            same(ours.to(xgrad.complex128), other.grad.to(torch.complex128), rtol=1e-6)
            same(kept.to(xgrad.complex128), other.grad.to(torch.complex128), rtol=1e-6)
            assert ours.dtype == getattr(xgrad, str(other.grad.dtype).removeprefix("torch."))


def test_errors_and_warnings_of_clipping():
    same_error(lambda T: clipped(T, 0.5, error_if_nonfinite=True, scale=float("nan")), "is non-finite, so it cannot be")
    with pytest.warns(UserWarning, match="is an empty generator"):
        xgrad.nn.utils.clip_grad_norm_((p for p in []), 1.0)
    with pytest.warns(FutureWarning, match="deprecated in favor of"):
        xgrad.nn.utils.clip_grad_norm(params(xgrad), 1.0)


def vector(T):
    ps = params(T)
    v = T.nn.utils.parameters_to_vector(ps)
    (v * v).sum().backward()
    T.nn.utils.vector_to_parameters(v * 2, (p for p in ps))
    return v, ps, grads(ps), [p.is_leaf for p in ps]


def test_parameters_become_a_vector_and_back():
    as_torch(vector)
    same_error(lambda T: T.nn.utils.vector_to_parameters([1.0], params(T)), "expected .*Tensor, but got")
    with pytest.raises(RuntimeError):
        xgrad.nn.utils.vector_to_parameters(xgrad.ones(3), params(xgrad))


def test_a_program_of_the_norm_is_made_once():
    @xgrad.compile
    def step(x):
        w = xgrad.nn.Parameter(x)
        (w * w).sum().backward()
        total = xgrad.nn.utils.clip_grad_norm_([w], 1.0)
        return total, w.grad

    total, grad = step(xgrad.tensor([3.0, 4.0]))
    assert total.item() == pytest.approx(10.0)
    assert grad.tolist() == pytest.approx([0.6, 0.8], rel=1e-5)


def test_skip_init():
    before = xgrad.get_rng_state()
    module = xgrad.nn.utils.skip_init(xgrad.nn.Linear, 2, out_features=3)
    assert bool((xgrad.get_rng_state() == before).all())
    assert module.weight.shape == (3, 2)
    same_error(lambda T: T.nn.utils.skip_init(T.nn.Sequential), "must support a 'device' arg")
    same_error(lambda T: T.nn.utils.skip_init(dict), "Expected a Module; got")


def norm_args(T, n):
    return [data(T, (n,), 1), data(T, (n,), 2).abs(), 1e-5, data(T, (n,), 3), data(T, (n,), 4)]


FUSED = {
    "conv": lambda T: T.nn.utils.fuse_conv_bn_weights(data(T, (2, 3, 1)), data(T, (2,)), *norm_args(T, 2)),
    "conv without bias": lambda T: T.nn.utils.fuse_conv_bn_weights(data(T, (2, 3, 1)), None, *norm_args(T, 2)),
    "transposed": lambda T: T.nn.utils.fuse_conv_bn_weights(
        data(T, (3, 2, 1)), data(T, (2,)), *norm_args(T, 2), transpose=True
    ),
    "without affine": lambda T: T.nn.utils.fuse_conv_bn_weights(
        data(T, (2, 3, 1)), None, *norm_args(T, 2)[:3], None, None
    ),
    "linear": lambda T: T.nn.utils.fuse_linear_bn_weights(data(T, (2, 3)), data(T, (2,)), *norm_args(T, 2)),
    "trained": lambda T: [
        p.requires_grad for p in
        T.nn.utils.fuse_linear_bn_weights(data(T, (2, 3), requires_grad=True), data(T, (2,)), *norm_args(T, 2))
    ],
}  # fmt: skip


@pytest.mark.parametrize("program", FUSED.values(), ids=FUSED)
def test_norms_are_fused_as_in_torch(program):
    as_torch(program)
