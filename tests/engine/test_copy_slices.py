"""In-place writes through views of a base: values, gradients and double backward, in both paths."""

import pytest
import torch

import xgrad

from ..oracle import as_torch, data, leaf, same, same_error

VIEWS = {
    "select": lambda b: b[0],
    "select in the last dimension": lambda b: b[..., 1],
    "slice": lambda b: b[:, 1:],
    "slice with a step": lambda b: b[:, :, ::2],
    "transpose": lambda b: b.transpose(0, 2),
    "permute": lambda b: b.permute(2, 0, 1),
    "diagonal": lambda b: b.diagonal(0, 1, 2),
    "view": lambda b: b.view(-1),
    "view of a slice": lambda b: b[1].view(2, 4)[:, 1:],
    "unsqueeze": lambda b: b.unsqueeze(1),
    "squeeze": lambda b: b[:, :1].squeeze(1),
    "unfold": lambda b: b.view(-1).unfold(0, 2, 2),
    "as_strided": lambda b: b.as_strided((2, 2), (1, 4), 3),
    "as_strided of a view": lambda b: b[1].as_strided((2, 2), (1, 2), 9),
    "transposed slice": lambda b: b[0, 1:].t()[1:],
    "expanded and selected": lambda b: b.expand(3, 2, 2, 4)[0],
    "flatten": lambda b: b.flatten(1),
    "movedim": lambda b: b.movedim(0, -1),
    "unflatten": lambda b: b.unflatten(2, (2, 2))[..., 0],
    "alias": lambda b: b.view_as(b),
    "whole": lambda b: b[...],
    "tensor_split": lambda b: b.tensor_split(2, 2)[1],
    "narrow": lambda b: b.narrow(0, 1, 1),
}


def gradients(T, loss, inputs):
    """First and second gradients."""
    first = T.autograd.grad(loss, inputs, create_graph=True, allow_unused=True)
    penalty = sum((g * g).sum() for g in first if g is not None)
    return first, T.autograd.grad(penalty, inputs, allow_unused=True)


@pytest.mark.exhaustive
@pytest.mark.one_in(24)
@pytest.mark.parametrize("take", VIEWS.values(), ids=VIEWS)
def test_product_through_a_view(take, path):
    def program(T):
        x, base = leaf(T, 2, 2, 4), None
        base = x * 1
        view = take(base)
        w = leaf(T, *view.shape, seed=1)
        view.mul_(w)
        loss = (base * base * base).sum() + (view * view).sum()
        return base, view, base._version, gradients(T, loss, (x, w))

    as_torch(program)


@pytest.mark.one_in(9)
@pytest.mark.parametrize("take", list(VIEWS.values())[::3], ids=list(VIEWS)[::3])
def test_copy_into_a_view(take, path):
    def program(T):
        x = leaf(T, 2, 2, 4)
        base = x * 1
        view = take(base)
        w = leaf(T, *view.shape, seed=1)
        view.copy_(w)
        return base, gradients(T, (base * base * base).sum(), (x, w))

    as_torch(program)


# -- an in-place view operation on a view, then a write: PyTorch's own replay path gives a wrong gradient --------------


def t_then_mul(T, base, W):
    v = base[0]
    v.t_()
    v.mul_(W)
    return v


def t_then_copy(T, base, W):
    v = base[0]
    v.t_()
    v.copy_(W)
    return v


def t_of_a_sibling_then_mul(T, base, W):
    v, sibling = base[0], base[0]
    v.t_()
    sibling.mul_(W)
    return v


def mul_then_t(T, base, W):
    v = base[0]
    v.mul_(W)
    v.t_()
    return v


def mul_t_mul(T, base, W):
    v = base[0]
    v.mul_(W)
    v.t_()
    v.mul_(W)
    return v


def t_of_the_base(T, base, W):
    v = base[0]
    base.transpose_(0, 2)
    v.mul_(W)
    return v


def view_of_a_moved_view(T, base, W):
    v = base[0]
    v.t_()
    u = v[1]
    u.mul_(W[0])
    return v


def view_before_the_move(T, base, W):
    v = base[0]
    u = v[1]
    v.t_()
    u.mul_(W[0])
    return v


def unsqueeze_then_mul(T, base, W):
    v = base[0]
    v.unsqueeze_(0)
    v.mul_(W)
    v.squeeze_(0)
    v.add_(W)
    return v


def move_under_no_grad(T, base, W):
    v = base[0]
    with T.no_grad():
        v.t_()
    v.mul_(W)
    return v


def base_moved_then_viewed(T, base, W):
    base.transpose_(0, 2)
    v = base[1]
    v.mul_(W)
    base.transpose_(0, 1)
    v.add_(W)
    return v


def base_moved_between_two_writes(T, base, W):
    v = base[0]
    v.mul_(W)
    base.transpose_(0, 1)
    v.mul_(W)
    base[1].add_(W)
    return v


MOVES = [
    t_then_mul, t_then_copy, t_of_a_sibling_then_mul, mul_then_t, mul_t_mul, t_of_the_base, view_of_a_moved_view,
    view_before_the_move, unsqueeze_then_mul, move_under_no_grad, base_moved_then_viewed, base_moved_between_two_writes,
]  # fmt: skip


@pytest.mark.one_in(12)
@pytest.mark.parametrize("write", MOVES)
def test_inplace_view_operations_and_writes(write, path):
    def program(T):
        x, W = leaf(T, 2, 2, 2), leaf(T, 2, 2, seed=1)
        base = x * 1
        v = write(T, base, W)
        weights = data(T, (2, 2, 2), 3)
        loss = (base * base * weights).sum() + (v * v * v).sum()
        return base, v, gradients(T, loss, (x, W))

    as_torch(program)


# -- several writes ----------------------------------------------------------------------------------------------------


@pytest.mark.one_in(2)
def test_many_writes_into_one_base(path):
    def program(T):
        x = leaf(T, 3)
        buffer = T.zeros(5, 3, dtype=T.float64)
        h = x
        for i in range(5):
            h = (h * 1.5).tanh()
            buffer[i] = h
        return buffer, gradients(T, (buffer * buffer).sum(), (x,))

    as_torch(program)


@pytest.mark.one_in(2)
def test_state_read_from_the_buffer_that_it_is_written_to(path):
    def program(T):
        x, w = leaf(T, 3), leaf(T, 3, 3, seed=1)
        buffer = T.zeros(4, 3, dtype=T.float64)
        buffer[0] = x
        for i in range(3):
            buffer[i + 1].copy_((buffer[i].clone() @ w).tanh())
        return buffer, gradients(T, (buffer * buffer).sum(), (x, w))

    as_torch(program)


@pytest.mark.exhaustive
@pytest.mark.one_in(2)
def test_overlapping_views_written_in_turn(path):
    def program(T):
        x, w = leaf(T, 4, 4), leaf(T, 4, seed=1)
        base = x * 1
        base[1].mul_(w)
        base[:, 2].mul_(w)
        base.diagonal().mul_(w)
        base.t()[1:3].mul_(w)
        base.view(-1)[3:7].mul_(w)
        return base, gradients(T, (base * base).sum(), (x, w))

    as_torch(program)


def test_write_that_drops_all_of_the_base(path):
    def program(T):
        x, w = leaf(T, 3), leaf(T, 3, seed=1)
        base = x * 1
        base[:].copy_(w)
        return gradients(T, (base * base * base).sum(), (x, w))

    as_torch(program)


@pytest.mark.exhaustive
@pytest.mark.one_in(2)
def test_constant_written_into_a_view_has_no_gradient(path):
    def program(T):
        x = leaf(T, 2, 3)
        base = x * 1
        base[0].zero_()
        base[1, 1:].fill_(2.0)
        base[:, 0] = 5.0
        return base, gradients(T, (base * base * base).sum(), (x,))

    as_torch(program)


def test_base_outside_of_the_graph_enters_it_by_a_write(path):
    def program(T):
        w = leaf(T, 3)
        base = T.zeros(2, 3, dtype=T.float64)
        before, row = base[1], base[0]
        base[0].copy_(w)
        found = (base.requires_grad, before.requires_grad, row.requires_grad, base.is_leaf, row.is_leaf)
        return found, T.autograd.grad((base * base).sum() + row.sum(), w)

    as_torch(program)


@pytest.mark.exhaustive
@pytest.mark.one_in(2)
def test_source_is_another_part_of_the_same_base(path):
    def program(T):
        x = leaf(T, 3, 3)
        base = x * 1
        base[0].add_(base[1])
        base[1:].copy_(base[:1] * 2)
        base[2].mul_(base[0].clone())
        return base, gradients(T, (base * base * base).sum(), (x,))

    as_torch(program)


@pytest.mark.exhaustive
def test_broadcast_source(path):
    def program(T):
        x, w, s = leaf(T, 2, 3), leaf(T, 3, seed=1), leaf(T, seed=2)
        base = x * 1
        base[:, 1:].add_(s)
        base[:].mul_(w)
        base[0].copy_(s)
        return base, gradients(T, (base * base * base).sum(), (x, w, s))

    as_torch(program)


def test_source_of_another_dtype(path):
    def program(T):
        w = T.tensor([1.0, 2.0, 3.0], dtype=T.float32, requires_grad=True)
        base = leaf(T, 2, 3) * 1
        base[0].copy_(w)
        base[1].mul_(w)
        (g,) = T.autograd.grad((base * base).sum(), w)
        return base, g

    as_torch(program, rtol=1e-6)


# -- exec_info: only some gradients are wanted -------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", ["source", "base", "both", "neither part"])
def test_only_what_is_wanted(wanted, path):
    def program(T):
        x, w, other = leaf(T, 2, 3), leaf(T, 3, seed=1), leaf(T, 2, 3, seed=2)
        base = x * 1
        base[0].mul_(w)
        loss = (base * base * other).sum()
        inputs = {"source": (w,), "base": (x,), "both": (w, x), "neither part": (other,)}[wanted]
        return gradients(T, loss, inputs)

    as_torch(program)


@pytest.mark.parametrize("wanted", ["source", "base"])
def test_backward_with_inputs(wanted, path):
    def program(T):
        x, w = leaf(T, 2, 3), leaf(T, 3, seed=1)
        base = x * 1
        base[0].mul_(w)
        base[:, 1].copy_(w[:2])
        (base * base).sum().backward(inputs=[w] if wanted == "source" else [x])
        return x.grad, w.grad

    as_torch(program)


def test_gradient_of_the_base_before_and_after_the_write(path):
    """The base is asked for twice: as it was, by its edge of then, and as it is."""

    def program(T):
        x, w = leaf(T, 2, 3), leaf(T, 3, seed=1)
        base = x * 1
        before = T.autograd.graph.get_gradient_edge(base)
        base[0].mul_(w)
        return T.autograd.grad((base * base).sum(), (before, base))

    as_torch(program)


def test_gradient_of_a_view_that_was_written(path):
    def program(T):
        x, w = leaf(T, 2, 3), leaf(T, 3, seed=1)
        base = x * 1
        view = base[0]
        view.mul_(w)
        return T.autograd.grad((view * view).sum(), (view, base, w), allow_unused=True)

    as_torch(program)


# -- graphs that are kept, hooked, taken apart -------------------------------------------------------------------------


def test_retained_graph_gives_the_same_again(path):
    def program(T):
        x, w = leaf(T, 2, 3), leaf(T, 3, seed=1)
        base = x * 1
        base[0].mul_(w)
        base[1].tanh_()
        loss = (base * base).sum()
        return [T.autograd.grad(loss, (x, w), retain_graph=True) for _ in range(3)]

    as_torch(program)


def test_root_gradient_is_not_written_by_the_donated_update(path):
    """CopySlices may update the incoming gradient in place only if nobody else holds it."""

    def program(T):
        x, w = leaf(T, 40, 500), leaf(T, 500, seed=1)  # large enough for a donation
        base = x * 1
        held = []
        base[0].mul_(w)
        base.register_hook(held.append)
        root = data(T, (40, 500), 2)
        base.backward(root)
        return root, held[0], x.grad, w.grad

    as_torch(program)


def test_gradient_that_goes_two_ways_is_not_written_by_the_donated_update(path):
    def program(T):
        x, y = leaf(T, 40, 500), leaf(T, 40, 500, seed=1)
        a = x * 1
        a[0].mul_(2)
        a[1].zero_()
        (a + y).sum().backward()
        return x.grad, y.grad

    as_torch(program)


def test_node_names(path):
    x = leaf(xgrad, 2, 3)
    base = x * 1
    view = base[0]
    assert view.grad_fn.name() == "SelectBackward0"
    view.mul_(2)
    assert type(base.grad_fn).__name__ == "CopySlices"
    assert base.grad_fn.name() == "torch::autograd::CopySlices"
    assert base.grad_fn.next_functions[0][0].name() == "MulBackward0"
    regenerated = view.grad_fn
    assert regenerated.name() == ("AsStridedBackward0" if path == "geometry" else "SelectBackward0")
    assert regenerated.next_functions[0][0] is base.grad_fn
    assert view.grad_fn is regenerated


def test_hook_on_the_written_value_sees_the_part_alone(path):
    def program(T):
        x, w = leaf(T, 2, 3), leaf(T, 3, seed=1)
        base = x * 1
        seen = []
        product = w * 2
        product.register_hook(lambda grad: seen.append(grad.clone()))
        base[1].copy_(product)
        (base * base).sum().backward()
        return seen, x.grad, w.grad

    as_torch(program)


def test_custom_function_written_through_a_view(path):
    def program(T):
        class Triple(T.autograd.Function):
            @staticmethod
            def forward(ctx, x, w):
                ctx.mark_dirty(x)
                ctx.save_for_backward(w)
                x.mul_(w)
                return x

            @staticmethod
            def backward(ctx, grad):
                (w,) = ctx.saved_tensors
                return grad * w, (grad * 2).sum(0, keepdim=True).expand(3) * 0 + grad

        x, w = leaf(T, 2, 3), leaf(T, 3, seed=1)
        base = x * 1
        Triple.apply(base[0], w)
        (base * base).sum().backward()
        return base, x.grad, w.grad

    as_torch(program)


def test_undefined_gradient_passes(path):
    """A base whose gradient never arrives gives none to its parts."""

    def program(T):
        class First(T.autograd.Function):
            @staticmethod
            def forward(ctx, a, b):
                ctx.set_materialize_grads(False)
                return a.clone(), b.clone()

            @staticmethod
            def backward(ctx, ga, gb):
                return ga, gb

        x, w = leaf(T, 2, 3), leaf(T, 3, seed=1)
        base = x * 1
        base[0].mul_(w)
        _, b = First.apply(base, w)
        return T.autograd.grad(b.sum(), (x, w), allow_unused=True)

    as_torch(program)


# -- refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("take", "match"),
    [
        (lambda T, b: b.split(1)[0], "multiple views"),
        (lambda T, b: b.unbind(0)[0], "multiple views"),
        (lambda T, b: b.chunk(2)[1], "multiple views"),
        (lambda T, b: _under_no_grad(T, lambda: b[0]), "no_grad mode"),
        (lambda T, b: b.expand(2, 2, 3), "single memory location|overlap"),
    ],
)
def test_refused_views(take, match, path):
    def program(T):
        base = leaf(T, 2, 3) * 1
        view = take(T, base)
        view.mul_(2)

    same_error(program, match)


def _under_no_grad(T, function):
    with T.no_grad():
        return function()


@pytest.mark.parametrize("take", [lambda b: b.unbind(0)[0], lambda b: b.split(1)[0]])
def test_stale_view_of_several_is_refused_when_it_is_used(take, path):
    def program(T):
        base = leaf(T, 2, 3) * 1
        view = take(base)
        base.mul_(2)
        (view * 2).sum()

    same_error(program, "multiple views")


def test_leaf_and_its_views_are_refused(path):
    same_error(lambda T: leaf(T, 3).mul_(2), "a leaf Variable that requires grad")
    same_error(lambda T: leaf(T, 3)[:2].mul_(2), "a view of a leaf Variable that requires grad")


def test_overlapping_write_is_refused_though_torch_writes_it(path):
    base = leaf(xgrad, 4) * 1
    view = base.unfold(0, 2, 1)
    with pytest.raises(xgrad.errors.OverlapError, match="clone"):
        view.mul_(2)
    same(base, leaf(torch, 4))
    assert base._version == 0
