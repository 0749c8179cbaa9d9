"""What a chip lacks in StableHLO's words is found in every program: operators, derivatives, views and writes."""

import jax.numpy as jnp
import pytest

import xgrad
from xgrad.errors import BackendError

CHIP = xgrad.Backend("npu", without_hlo=["scatter", "stablehlo.sort", "gather"])


def program(device):
    x = xgrad.arange(12.0, device=device).reshape(3, 4).requires_grad_()
    y = x.clone()
    y[0].mul_(2)
    rows = y[xgrad.tensor([0, 2], device=device)]
    (rows.sum() + y.topk(2).values.sum() + y.diagonal().sum()).backward()
    return x.grad


@pytest.mark.parametrize("execution", ["eager", "lazy"])
def test_the_host_computes_what_is_made_of_it_with_operator_and_line(execution):
    chip = CHIP.replace(execution=execution)
    with chip.report() as report:
        ours = program(chip)
        assert ours.tolist() == program("cpu").tolist()
    found = {(f["operator"], f["lack"]) for f in report.as_dict()["fallbacks"]}
    assert {
        ("index", "the StableHLO operation 'gather'"),  # forward
        ("IndexBackward0", "the StableHLO operation 'scatter'"),  # backward
        ("topk", "the StableHLO operations 'sort', 'gather'"),
        ("view", "the StableHLO operation 'gather'"),
        ("adjoint", "the StableHLO operation 'scatter'"),
    } <= found
    assert "mul" not in {operator for operator, _ in found}
    assert all("test_without_hlo.py" in f["line"] for f in report.as_dict()["fallbacks"])


def test_without_fallback_it_is_refused_and_nothing_changes():
    strict = xgrad.Backend("npu", without_hlo=["dynamic_update_slice"], fallback="error")
    x = xgrad.ones(2, 2, device=strict)
    with pytest.raises(BackendError, match=r"'add' is not implemented .* 'dynamic_update_slice' .*test_without_hlo"):
        x[1].add_(1)
    assert x.tolist() == [[1, 1], [1, 1]]
    assert (x + 1).tolist() == [[2, 2], [2, 2]]
    compiled = xgrad.compile(lambda x: x.exp().sum())
    assert compiled(x).item() == pytest.approx(4 * 2.7182818)


def test_an_own_view_makes_do_without_it():
    def mask(root, offset, dim1, dim2):
        return jnp.eye(*root.shape, k=offset, dtype=root.dtype)

    rule = xgrad.ViewRule(
        read=lambda root, *args: (root * mask(root, *args)).sum(1),
        write=lambda root, new, *args: root * (1 - mask(root, *args)) + new[:, None] * mask(root, *args),
        adjoint=lambda grad, root, *args: grad[:, None] * mask(root, *args),
    )
    chip = CHIP.replace(views={"diagonal": rule}, fallback="error")
    x = xgrad.ones(3, 3, device=chip, requires_grad=True)
    y = x.clone()
    y.diagonal().mul_(3)
    y.diagonal().sum().backward()
    assert x.grad.tolist() == [[3, 0, 0], [0, 3, 0], [0, 0, 3]]


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [(["scater"], ValueError, "Near it: scatter"), ([3], TypeError, "a list of StableHLO's"), (3, TypeError, "got")],
)
def test_what_cannot_be_declared(given, error, words):
    with pytest.raises(error, match=words):
        xgrad.Backend("npu", without_hlo=given)


def test_a_derivative_is_named_and_a_lowering_with_its_own():
    for fallback in ("error", "host"):
        chip = xgrad.Backend("chip", without_hlo=["scatter"], fallback=fallback)
        weight = xgrad.ones(4, 3, device=chip, requires_grad=True)
        loss = xgrad.nn.functional.embedding(xgrad.tensor([1, 2], device=chip), weight).sum()
        with chip.report() as report:
            if fallback == "error":
                with pytest.raises(xgrad.errors.BackendError, match=r"'embedding', in its derivative .*custom_vjp"):
                    loss.backward()
            else:
                loss.backward()
                assert "on the host: EmbeddingBackward0 at" in str(report)
