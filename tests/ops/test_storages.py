"""untyped_storage(), data_ptr() and where a tensor is: what programs that compare them find, in torch and here."""

import gc
import itertools

import numpy as np
import pytest
import torch

import xgrad
from tests.oracle import as_torch, same_error


def places(T):
    """Offsets of views from their base in bytes, and which tensors share memory."""
    x = T.zeros(4, 3)
    views = [
        x[1], x[:, 2], x.t(), x.t()[1], x[1:, 1:], x.expand(2, 4, 3), x.detach(), x.data, x.view(T.int32)[2], x[4:],
        x.view(6, 2)[3], x.reshape(3, 4), x.unsqueeze(0), x.diagonal(1), x.as_strided((2, 2), (1, 2), 5),
    ]  # fmt: skip
    others = [x.clone(), x + 0, T.zeros(4, 3), x.t().contiguous()]
    return (
        [v.data_ptr() - x.data_ptr() for v in views if v.numel()],
        [v.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for v in views],
        [v.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for v in others],
        [v.untyped_storage().nbytes() for v in views],
        x.untyped_storage().data_ptr() == x.data_ptr(),
        x[4:].data_ptr(), T.empty(0).data_ptr(), T.empty(0, 3).untyped_storage().data_ptr(),
    )  # fmt: skip


def test_numbers_of_views_and_copies_compare_as_addresses_do():
    as_torch(places)


def test_parts_of_complex_numbers_have_their_places():
    def program(T):
        z = T.zeros(3, dtype=T.complex64)
        return [v.data_ptr() - z.data_ptr() for v in (z.real, z.imag, z.imag[1], T.view_as_real(z)[1, 1], z.conj())]

    as_torch(program)


def test_living_storages_never_overlap_and_a_number_stays():
    tensors = [xgrad.zeros(n) for n in (1, 100, 3, 17, 64)]
    first = [x.data_ptr() for x in tensors]
    tensors += [xgrad.zeros(5) for _ in range(5)]
    ranges = sorted((x.data_ptr(), x.data_ptr() + x.nbytes) for x in tensors)
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(ranges))
    for x in tensors:
        x.add_(1)
    assert [x.data_ptr() for x in tensors[:5]] == first
    assert all(x.data_ptr() % 64 == 0 for x in tensors)


def test_a_storage_that_grows_gets_another_number():
    other, x = xgrad.zeros(2), xgrad.zeros(2)
    before = x.data_ptr(), other.data_ptr()
    x.resize_(1000)
    last = xgrad.zeros(4)
    assert x.data_ptr() != before[0]
    assert x.data_ptr() + x.nbytes <= last.data_ptr() or last.data_ptr() + last.nbytes <= x.data_ptr()
    assert other.data_ptr() == before[1]


def test_a_storage_lives_as_long_as_its_tensors_or_a_question_about_it():
    import weakref

    gc.disable()
    try:
        x = xgrad.zeros(4)
        storage = x.untyped_storage()
        known = weakref.ref(storage._storage)
        del x
        assert known() is not None
        assert storage.nbytes() == 16
        del storage
        assert known() is None
    finally:
        gc.enable()


def test_set_data_shares_storage_afterwards():
    def program(T):
        x, y = T.zeros(3), T.ones(3)
        before = x.data_ptr() == y.data_ptr()
        x.data = y
        return before, x.data_ptr() == y.data_ptr(), x.is_set_to(y), x.is_set_to(y[:2])

    as_torch(program)


def test_what_a_storage_tells():
    def program(T):
        x = T.tensor([1.0, 2.0])
        s, v = x.untyped_storage(), x[1:].untyped_storage()
        return (
            s.nbytes(), s.size(), len(s), str(s.device), s.tolist(), s[3], s == v, s == T.ones(2).untyped_storage(),
            s.element_size(), s.is_cuda, s.is_sparse, s.is_shared(), s.is_pinned(), s.filename, T.is_storage(s),
            T.is_storage(x), hash(s) == hash(s), s.data_ptr() == s.untyped().data_ptr(),
        )  # fmt: skip

    as_torch(program)
    assert repr(xgrad.zeros(3).untyped_storage()) == "[xgrad.UntypedStorage(device=cpu) of size 12]"


def test_the_typed_storage_warns_and_counts_elements():
    def program(T):
        x = T.tensor([1.0, 2.0, 3.0])
        with pytest.warns(UserWarning, match="TypedStorage is deprecated"):
            s = x[1:].storage()
        return s.size(), len(s), s.nbytes(), s.data_ptr() == x.data_ptr(), s.tolist(), s[1], str(s.dtype).split(".")[-1]

    torch.storage._reset_warn_typed_storage_removal()
    as_torch(program)
    with pytest.warns(UserWarning, match="deprecated"):
        assert repr(xgrad.zeros(2).storage()) == "[xgrad.TypedStorage(dtype=xgrad.float32, device=cpu) of size 2]"


def test_what_was_seen_of_a_storage_is_not_written_over():
    x = xgrad.zeros(3)
    seen = np.asarray(x.untyped_storage()._values())
    x.add_(1)
    assert not seen.any()


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda s: s.resize_(16), r"tensor\.resize_\(sizes\).*x\.data = xgrad\.empty\(0\)"),
        (lambda s: s.copy_(s), r"tensor\.copy_"),
        (lambda s: s.fill_(0), r"tensor\.fill_"),
        (lambda s: s.__setitem__(0, 1), r"x\[index\] = value"),
        (lambda s: type(s)(8), r"ask its untyped_storage\(\)"),
        (lambda s: xgrad.Tensor(s), r"x\.as_strided"),
    ],
)
def test_a_storage_is_not_written_to(call, match):
    with pytest.raises(NotImplementedError, match=match):
        call(xgrad.zeros(2).untyped_storage())


def test_what_has_no_storage_says_so():
    def program(T):
        return T.zeros(2).to_sparse().data_ptr()

    same_error(program, "that doesn't have storage.*values()")
    with pytest.raises(RuntimeError, match=r"data_ptr\(\).*outside of vmap"):
        xgrad.func.vmap(lambda x: x + x.data_ptr())(xgrad.zeros(2))


def test_where_a_tensor_is():
    def program(T):
        x = T.zeros(2)
        names = "is_cpu is_cuda is_xla is_mps is_xpu is_meta is_ipu is_vulkan is_maia is_mtia is_sparse is_quantized"
        return (
            [getattr(x, name) for name in names.split()],
            x.get_device(),
            T.get_device(x),
            x.is_shared(),
            x.is_pinned(),
        )

    as_torch(program)
    x = xgrad.zeros(1)
    assert x.pin_memory() is x
    assert x.to_sparse().is_cpu


def test_typename():
    def program(T):
        names = [T.typename(x) for x in (T.ones(1), T.ones(1, dtype=T.bfloat16), 3, None, [1], T.LongTensor)]
        return [name.replace("xgrad", "torch") for name in names]

    as_torch(program)


def settings_of(T):
    """What set_ leaves behind: values, what is shared, versions, and histories."""
    b = T.arange(6.0)
    whole, part, strided, row = (T.zeros(1) for _ in range(4))
    whole.set_(b)
    part.set_(b.untyped_storage(), 1, (2, 2))
    strided.set_(b, 1, (2,), (2,))
    row.set_(b.view(2, 3).t()[1])
    ints = T.zeros(1, dtype=T.int32).set_(b.untyped_storage())
    part.mul_(10)
    versions = [x._version for x in (b, whole, part, strided)]
    p = T.ones(1, requires_grad=True)
    with T.no_grad():
        p.set_(T.full((2,), 3.0))
    (p * p).sum().backward()
    view = T.arange(3.0)[1:]
    view.set_(T.ones(4)).add_(1)
    empty = T.ones(2).set_()
    return [b, whole, part, strided, row, ints.view(T.float32), versions, p.grad, view, view._is_view(), empty]


def test_set_shows_another_storage_that_both_share():
    as_torch(settings_of)


def made_in_inference_mode(T):
    with T.inference_mode():
        return T.ones(2)


@pytest.mark.parametrize(
    ("program", "phrase"),
    [
        (lambda T: T.ones(2, requires_grad=True).set_(T.ones(2)), "a leaf Variable that requires grad"),
        (lambda T: T.zeros(1).set_(T.ones(2, requires_grad=True)).sum().backward(), "derivative for set_ is not"),
        (lambda T: (T.ones(2, requires_grad=True) * 2).set_(T.ones(2)).sum().backward(), "derivative for set_ is not"),
        (lambda T: T.zeros(1).set_(T.ones(2, dtype=T.int32)), "Could not set tensor of type"),
        (lambda T: T.zeros(1).set_(T.ones(2).untyped_storage(), -1, (1,)), "invalid storage offset"),
        (lambda T: T.zeros(1).set_(5), "invalid combination of arguments"),
        (lambda T: T.zeros(1).set_(T.ones(2), 1), "invalid combination of arguments"),
        (lambda T: made_in_inference_mode(T).set_(T.ones(2)), "Inplace update to inference tensor"),
    ],
)
def test_set_refuses_what_torch_refuses(program, phrase):
    same_error(program, phrase)


def test_set_refuses_tangents_as_torch_does():
    forward_ad = xgrad.autograd.forward_ad
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(xgrad.ones(2), xgrad.ones(2))
        for x, source in ((xgrad.zeros(2), dual), (dual, xgrad.zeros(2))):
            with pytest.raises(NotImplementedError, match="forward AD with set_ that does not support it"):
                x.set_(source)


def test_set_is_noticed_by_a_saved_tensor_and_changes_nothing_where_it_is_refused():
    a, w = xgrad.ones(2, requires_grad=True), xgrad.ones(2)
    y = a * w
    with pytest.raises(RuntimeError, match="out of bounds"):
        w.set_(xgrad.ones(2).untyped_storage(), 1, (2,))
    assert (w.tolist(), w._version) == ([1, 1], 0)
    made = made_in_inference_mode(xgrad)
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        made.set_(xgrad.zeros(2))
    assert made.tolist() == [1, 1]
    w.set_(xgrad.zeros(2))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_set_in_a_compiled_function_shares_the_storage_that_it_shares_in_each_call():
    b, a = xgrad.arange(6.0), xgrad.zeros(1)
    step = xgrad.compile(lambda: a.set_(b, 1, (2,)).mul_(2).sum())
    assert [step().item() for _ in range(3)] == [6, 12, 24]
    assert (b.tolist(), a.tolist()) == ([0, 8, 16, 3, 4, 5], [8, 16])


def stolen(T):
    """Of each gradient: is the leaf's the memory that backward's function or hook saw?"""
    seen = []

    class Dense(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            result = grad * 2
            seen.append(result.data_ptr())
            return result

    class Sparse(T.autograd.Function):
        kept = None

        @staticmethod
        def forward(ctx, x, keep):
            ctx.keep = keep
            return x.sum()

        @staticmethod
        def backward(ctx, grad):
            result = T.sparse_coo_tensor(T.tensor([[1]]), T.tensor([2.0]), (3,))
            seen.append(result._values().data_ptr())
            Sparse.kept = result if ctx.keep else None
            return result, None

    found = []
    for leads in (Dense.apply, lambda x: Sparse.apply(x, False), lambda x: Sparse.apply(x, True), None):
        x = T.ones(3, requires_grad=True)
        if leads is None:
            x.register_hook(lambda grad: seen.append(grad.data_ptr()))
            (x * 2).sum().backward()
        else:
            leads(x).sum().backward()
        grad = x.grad._values() if x.grad.is_sparse else x.grad
        found.append(grad.data_ptr() == seen[-1])
    x = T.ones(3, requires_grad=True)
    node = T.autograd.graph.get_gradient_edge(x).node
    node.register_prehook(lambda grads: seen.append(grads[0].data_ptr()))
    node.register_hook(lambda _, grads: seen.append(grads[0].data_ptr()))
    (x * 2).sum().backward()
    found += [place == x.grad.data_ptr() for place in seen[-2:]]
    x, y = T.ones(3, requires_grad=True), T.ones(3, requires_grad=True)
    seed = T.ones(3)
    (x + y).backward(seed)
    return found, x.grad.data_ptr() == y.grad.data_ptr(), x.grad.data_ptr() == seed.data_ptr()


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_a_gradient_that_nobody_else_has_is_stolen():
    as_torch(stolen)
