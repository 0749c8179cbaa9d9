"""Operators, views, writes and backward on a declared backend: values as on torch, and everything stays on it."""

import numpy as np
import pytest

import xgrad
from xgrad.execution.pending import Pending

CHIPS = [xgrad.Backend("chip"), xgrad.Backend("strided", strides=True), xgrad.Backend("lazy", execution="lazy")]


@pytest.fixture(params=CHIPS, ids=lambda backend: backend.name)
def chip(request):
    return request.param


def leaf(chip, *shape):
    values = np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape) / 4
    return xgrad.tensor(values, device=chip, requires_grad=True)


def test_results_views_and_gradients_are_on_the_backend(chip):
    x = leaf(chip, 2, 3)
    y = (x * 2).tanh()
    base = x.clone()
    row = base[0]
    row.mul_(y[1])
    base.t()[2].add_(1)
    loss = (base * y).sum()
    loss.backward()
    tensors = [x, y, base, row, loss, x.grad, x.grad[0], x[x > 0.5], x.argmax(), *x.unbind(), x.max(dim=0).values]
    assert {t.device for t in tensors} == {chip.device}
    assert all(type(t._held()) is Pending for t in tensors)


def test_values_are_those_of_the_cpu(chip):
    def program(x):
        base = x.clone()
        base[0].mul_(x[1])
        base.t()[2].add_(1)
        first, second = base.split(1)
        out = (first.exp() * second).sum()
        (g,) = xgrad.autograd.grad(out, x, create_graph=True)
        (h,) = xgrad.autograd.grad((g * g).sum(), x)
        return [t.detach().numpy() for t in (base, out, g, h)]

    for ours, theirs in zip(program(leaf(chip, 2, 3)), program(leaf("cpu", 2, 3)), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_strides_choose_the_path(chip):
    base = leaf(chip, 2, 3).clone()
    row = base[0]
    row.mul_(2)
    assert row.grad_fn.name() == ("AsStridedBackward0" if chip.strides else "SelectBackward0")
    with xgrad.views.tracking("replay"):
        row = base[1]
    row.mul_(2)
    assert row.grad_fn.name() == "SelectBackward0"


def test_hooks_and_saved_tensors_are_on_the_backend(chip):
    x = leaf(chip, 3)
    seen = []
    with xgrad.autograd.graph.saved_tensors_hooks(
        lambda t: (seen.append(t.device), t)[1], lambda t: (seen.append(t.device), t)[1]
    ):
        y = (x * x).exp()
    y.register_hook(lambda g: seen.append(g.device))
    x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.device))
    y.sum().backward()
    assert len(seen) > 4
    assert set(seen) == {chip.device}
    packed = xgrad.autograd.graph.save_on_cpu()
    with packed:
        z = x * x
    z.sum().backward()
    assert x.grad.device == chip.device


def test_a_custom_function_gets_zeros_there(chip):
    class Two(xgrad.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b):
            return a + b

    x = leaf(chip, 3)
    Two.apply(x)[0].sum().backward()
    assert (x.grad.device, x.grad.tolist()) == (chip.device, [1, 1, 1])


def test_compiled_things_leave_results_on_the_backend(chip):
    x, w = leaf(chip, 2, 3), leaf(chip, 2, 3)
    with xgrad.autograd.compiled_backward():
        (x * w).sum().backward()
    compiled = xgrad.compile(lambda a: (a * w).sum())
    assert [compiled(x).device, compiled(x).device] == [chip.device] * 2
    with_closure = xgrad.compile(lambda n: (w * n).sum())
    assert with_closure(2.0).device == chip.device
    assert w.device == chip.device
    y = xgrad.utils.checkpoint.checkpoint(lambda a: (a * a).exp(), x, use_reentrant=False)
    y.sum().backward()
    assert x.grad.device == y.device == chip.device
    g = xgrad.func.grad(lambda a: (a * a).sum())(x.detach())
    mapped = xgrad.vmap(lambda a: a * 2)(x.detach())
    assert g.device == mapped.device == chip.device
    assert compiled(leaf("cpu", 2, 3).to(chip)).device == chip.device


def test_a_training_step_stays_on_the_backend(chip):
    model = xgrad.nn.Linear(3, 1).to(chip)
    before = model.weight.detach().clone()
    for _ in range(2):
        model.zero_grad()
        xgrad.nn.functional.mse_loss(model(leaf(chip, 2, 3)), xgrad.zeros(2, 1, device=chip)).backward()
        with xgrad.no_grad():
            for p in model.parameters():
                p.sub_(p.grad, alpha=0.1)
    assert model.weight.device == model.weight.grad.device == chip.device
    assert bool((before != model.weight).any())


def test_devices_do_not_mix_in_an_operator(chip):
    x = leaf(chip, 3)
    words = r"Expected all tensors to be on the same device, but found at least two devices, .*:0 and cpu!"
    for mixed in (lambda: x + xgrad.ones(3), lambda: xgrad.where(x > 0, x, xgrad.ones(3)),
                  lambda: x.detach().add_(xgrad.ones(3))):  # fmt: skip
        with pytest.raises(RuntimeError, match=words):
            mixed()
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        xgrad.ones(3).add_(x)
    assert ((x + xgrad.tensor(2.0)).device, (2 + x).device) == (chip.device, chip.device)
    assert x[xgrad.tensor([0, 2])].tolist() == [0.25, 0.75]
    x.detach().copy_(xgrad.ones(3))
    assert x.tolist() == [1, 1, 1]
    with pytest.raises(RuntimeError, match="assign a gradient located on device cpu to a tensor located on device"):
        x.grad = xgrad.ones(3)


def test_transfers_are_recorded(chip):
    x = xgrad.ones(3, requires_grad=True)
    other = xgrad.Backend("other")
    y = x.to(chip) * 2
    z = y.to(other) * 3
    z.cpu().sum().backward()
    assert (x.grad.tolist(), x.grad.device) == ([6, 6, 6], x.device)
    assert (y.device, z.device) == (chip.device, other.device)


def test_values_are_read_as_those_of_an_accelerator_of_jaxs(chip):
    x = leaf(chip, 3).detach()
    assert (x.sum().item(), x.tolist(), bool(x[0] > 0)) == (1.5, [0.25, 0.5, 0.75], True)
    assert type(x.numpy()) is np.ndarray
    assert xgrad.from_dlpack(x).tolist() == x.tolist()
    assert not hasattr(x.__jax_array__(), "queue")


def test_lazy_blocks_and_inference(chip):
    x = leaf(chip, 3)
    with xgrad.lazy():
        y = (x * 2).sum()
        y.backward()
    assert (y.device, x.grad.tolist()) == (chip.device, [2, 2, 2])
    with xgrad.inference_mode():
        assert (x * 2).device == chip.device


def test_gradients_within_vmap_and_vmap_within_gradients(chip):
    """vmap(grad(f)) began with a gradient on the CPU, and was refused as two devices."""

    def f(row):
        return (row.exp() * row.tanh()).sum()

    ours, theirs = leaf(chip, 2, 3).detach(), leaf("cpu", 2, 3).detach()
    for transformed in (
        xgrad.func.vmap(xgrad.func.grad(f)),
        xgrad.func.vmap(xgrad.func.hessian(f)),
        xgrad.func.grad(lambda x: xgrad.func.vmap(f)(x).sum()),
        xgrad.func.jacfwd(f),
    ):
        found = transformed(ours)
        assert found.device == chip.device
        np.testing.assert_allclose(found.tolist(), transformed(theirs).tolist(), rtol=1e-5)
