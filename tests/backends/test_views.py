"""Views by a backend's rules: own functions, geometry, free, copies, refused; chains mix them."""

import pickle

import jax.numpy as jnp
import numpy as np
import pytest

import xgrad
from xgrad.errors import BackendError


def read(root, offset, dim1, dim2):
    return jnp.diagonal(root, offset, dim1, dim2)


def write(root, new, offset, dim1, dim2):
    i = jnp.arange(new.shape[-1])
    last = jnp.moveaxis(root, (dim1, dim2), (-2, -1))
    last = last.at[..., i + max(0, -offset), i + max(0, offset)].set(new)
    return jnp.moveaxis(last, (-2, -1), (dim1, dim2))


def adjoint(grad, root, *args):
    return write(jnp.zeros(root.shape, grad.dtype), grad, *args)


DIAGONAL = xgrad.ViewRule(read, write, adjoint)
SWAP = xgrad.ViewRule(
    read=lambda root, a, b: root.swapaxes(a, b),
    write=lambda root, new, a, b: new.swapaxes(a, b),
    adjoint=lambda grad, root, a, b: grad.swapaxes(a, b),
)
TAKE = xgrad.ViewRule(read=lambda root, dim, index: jnp.take(root, index, axis=dim))
RULES = {
    "own": {"diagonal": DIAGONAL, "transpose": SWAP, "select": TAKE},
    "one own": {"diagonal": DIAGONAL},
    "geometry": {"*": "geometry"},
    "free": {"*": "free"},
    "mixed": {"transpose": "free", "diagonal": DIAGONAL, "select": "geometry", "slice": "replay"},
}


def program(x):
    base = x.clone()
    base.diagonal().mul_(x[1])
    base.t()[2].add_(1)
    crossed = base.t().diagonal(1)
    crossed.copy_(x[0, :3].exp() * 2)
    base.register_hook(lambda grad: grad * 2)
    first, second = base.split(2)
    out = (first.exp() * second).sum() + crossed.sum() + base[1:, 2].sum() + base.mT.unfold(0, 2, 1).sum()
    (g,) = xgrad.autograd.grad(out, x, create_graph=True)
    (h,) = xgrad.autograd.grad((g * g).sum(), x)
    return base, crossed, out, g, h


def leaf(device, n=4):
    values = np.linspace(-1, 1, n * n, dtype=np.float32).reshape(n, n)
    return xgrad.tensor(values, device=device, requires_grad=True)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("execution", ["eager", "lazy"])
@pytest.mark.parametrize("rules", [*RULES])
def test_values_and_derivatives_are_those_of_the_cpu(rules, execution):
    chip = xgrad.Backend("npu", views=RULES[rules], execution=execution)
    for ours, theirs in zip(program(leaf(chip)), program(leaf("cpu")), strict=True):
        np.testing.assert_allclose(ours.numpy(force=True), theirs.numpy(force=True), rtol=1e-5)


def test_own_functions_are_what_runs_forward_backward_compiled_and_in_a_batch():
    ran = []

    def counted(name, function):
        return lambda *args: (ran.append(name), function(*args))[1]

    rule = xgrad.ViewRule(counted("read", read), counted("write", write), counted("adjoint", adjoint))
    x = leaf(xgrad.Backend("npu", views={"diagonal": rule}), 3)
    base = x.clone()
    base.diagonal().mul_(2)
    base.diagonal().sum().backward()
    assert {"read", "write", "adjoint"} == {*ran}
    ran.clear()
    assert xgrad.compile(lambda x: x.diagonal(1).sum())(x).item() == pytest.approx(-0.5)
    assert "read" in ran
    ran.clear()
    rows = xgrad.func.vmap(lambda m: m.diagonal(-1))(xgrad.stack([x, x * 2]))
    np.testing.assert_allclose(rows.numpy(force=True), [[-0.25, 0.75], [-0.5, 1.5]])
    assert "read" in ran


def test_tangents_go_along_an_own_view_and_through_a_write():
    x = leaf(xgrad.Backend("npu", views={"diagonal": DIAGONAL}), 3).detach()

    def f(x):
        y = x.clone()
        y.diagonal().mul_(x[0])
        return y.diagonal() * 3

    ours, theirs = [xgrad.func.jacfwd(f)(x.to(d)).numpy() for d in (x.device, "cpu")]
    np.testing.assert_allclose(ours, theirs)


def test_a_written_view_has_the_grad_fn_of_its_rule():
    def grad_fn(**declared):
        view = leaf(xgrad.Backend("npu", **declared)).clone().t()
        view.mul_(2)
        return view.grad_fn.name()

    assert grad_fn(views={"transpose": "geometry"}) == "AsStridedBackward0"
    assert grad_fn(views={"transpose": SWAP}) == grad_fn(views={"transpose": "free"}) == "TBackward0"
    assert grad_fn(views={"transpose": "replay"}, strides=True) == "TBackward0"
    with xgrad.views.tracking("replay"):
        assert grad_fn(views={"transpose": "geometry"}) == "TBackward0"


def test_reading_a_free_view_is_no_launch_and_one_behind_another_view_is():
    chip = xgrad.Backend("npu", views={"transpose": "free"})
    x = xgrad.ones(4, 3, device=chip)
    with chip.report() as report:
        x.t().exp()
        x[0]._read()
        x[1:].t().exp()
    assert report.as_dict()["views"]["read"]["count"] == 2
    assert report.launches == 4


def test_a_copy_is_no_alias_and_the_report_says_which_writes_show_it():
    chip = xgrad.Backend("npu", views={"narrow": "copy"})
    x = leaf(chip)
    with chip.report() as report:
        y = x.clone()
        part = y.narrow(0, 0, 2)
        part.mul_(0)
        y.add_(1)
    np.testing.assert_allclose(y.numpy(force=True), x.numpy(force=True) + 1)
    found = report.as_dict()
    assert [(c["view"], c["bytes"]) for c in found["views that are copies"]] == [("narrow", 32)]
    written = found["writes that an alias would have shown"]
    assert [w["count"] for w in written] == [1, 1]
    assert {w["line"] for w in written} == {found["views that are copies"][0]["line"]}
    assert "test_views.py" in written[0]["written"]
    assert "not shown by narrow" in str(report)
    (grad,) = xgrad.autograd.grad(x.narrow(0, 0, 2).sum(), x)
    assert grad.sum().item() == 8


def test_a_copy_that_is_gone_is_no_writes_concern():
    chip = xgrad.Backend("npu", views={"select": "copy"})
    x = xgrad.ones(3, device=chip)
    with chip.report() as report:
        float(x[0])
        x.add_(1)
    assert report.as_dict()["writes that an alias would have shown"] == []


def test_assignments_write_where_views_are_copies():
    def program(device):
        x = xgrad.arange(12.0, device=device).reshape(3, 4).clone()
        x[0] = 5
        x[1:, 2] = xgrad.tensor([7.0, 8.0], device=device)
        x[0, xgrad.tensor([1, 2], device=device)] = 3.0
        x.fill_diagonal_(9)
        z = xgrad.zeros(2, dtype=xgrad.complex64, device=device)
        z.real = 2.0
        return x, z.real, x.diagonal_scatter(x[0, :3]), xgrad.func.jacrev(lambda x: x.sum(0))(x)

    for ours, theirs in zip(program(xgrad.Backend("npu", views={"*": "copy"})), program("cpu"), strict=True):
        assert ours.tolist() == theirs.tolist()


def test_each_operation_that_is_made_of_a_refused_view_is_refused_and_nothing_changes():
    chip = xgrad.Backend("npu", views={"select": "refuse", "transpose": "refuse"})
    x = xgrad.ones(2, 2, device=chip)
    for view in (lambda: x[0], lambda: x.unbind(), lambda: x.__setitem__(0, 3), lambda: x.mT, lambda: x.t_()):
        with pytest.raises(
            BackendError, match=r"The view '(select|transpose)' of float32\[2, 2\] is refused .*test_views"
        ):
            view()
    assert x.tolist() == [[1, 1], [1, 1]]
    assert x[1:].shape == (1, 2)


@pytest.mark.parametrize(
    ("views", "error", "words"),
    [
        ({"diag": "copy"}, ValueError, "'diag', which is not a view operation"),
        ({"diagonal": "cheap"}, ValueError, "one of replay, geometry"),
        ({"*": DIAGONAL}, ValueError, "each view operation has its own"),
        ({"as_strided": DIAGONAL}, ValueError, "addresses the storage"),
        ({"swapaxes": "copy", "transpose": "free"}, ValueError, "two rules"),
        (["copy"], TypeError, "views is"),
    ],
)
def test_what_cannot_be_declared(views, error, words):
    with pytest.raises(error, match=words):
        xgrad.Backend("npu", views=views)
    with pytest.raises(TypeError, match="read is a function"):
        xgrad.ViewRule(read=3)


@pytest.mark.parametrize("where", ["without", "lowerings"])
def test_a_view_operation_is_not_an_operator_and_the_message_says_where_it_goes(where):
    given = ["transpose"] if where == "without" else {"transpose": read}
    with pytest.raises(ValueError, match=r"'transpose' is a view operation: declare views="):
        xgrad.Backend("npu", **{where: given})


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (xgrad.ViewRule(read=lambda root, *args: root), r"read of float32\[3, 3\] gave float32\[3, 3\], but must give"),
        (xgrad.ViewRule(write=lambda root, new, *args: new), r"write of float32\[3, 3\] gave float32\[3\]"),
        (xgrad.ViewRule(read=lambda root: root), "read of .* raised TypeError"),
    ],
)
def test_a_rule_of_another_shape_is_an_error_at_the_view(rule, words):
    with pytest.raises(BackendError, match=rf"diagonal\(0, 0, 1\): the backend's own {words}"):
        leaf(xgrad.Backend("npu", views={"diagonal": rule}), 3).diagonal()


def test_rules_are_part_of_the_declaration():
    chip = xgrad.Backend("npu", views={"diagonal": DIAGONAL, "t": "copy"})
    again = pickle.loads(pickle.dumps(chip))
    assert again == chip
    assert dict(again.views) == {"diagonal": DIAGONAL, "t": "copy"}
    assert chip.replace(views={}) != chip


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int32", "complex64"])
def test_half_precision_whole_and_complex_numbers(dtype):
    chip = xgrad.Backend("npu", views={"diagonal": DIAGONAL})
    x, y = [xgrad.arange(9, device=d).reshape(3, 3).to(getattr(xgrad, dtype)) for d in (chip, "cpu")]
    for t in (x, y):
        t.diagonal().mul_(3)
    assert x.tolist() == y.tolist()
