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
