"""torch.nn.attention's names: a program that chooses a kernel runs, and computes what it computes in torch."""

import pytest

import xgrad

from ..oracle import as_torch, data, same_error


def kernels(T):
    return T.nn.attention.SDPBackend


def attended(T):
    q = data(T, (1, 2, 3, 4), 1)
    return T.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)


def test_attention_within_a_choice_of_kernels():
    def program(T):
        choose, one = T.nn.attention.sdpa_kernel, kernels(T)
        decorated = choose(one.MATH)(attended)
        with choose([one.FLASH_ATTENTION, one.MATH], set_priority=True):
            within = attended(T)
        return within, decorated(T), decorated(T), T.nn.attention.WARN_FOR_UNFUSED_KERNELS

    as_torch(program)


def test_kernels_have_torchs_names_and_numbers():
    def program(T):
        return [(str(one), one.name, int(one), one == kernels(T)(int(one))) for one in map(kernels(T), range(-1, 5))]

    as_torch(program)


@pytest.mark.parametrize("wrong", ["MATH", None, 0])
def test_what_is_no_kernel_is_refused(wrong):
    same_error(lambda T: T.nn.attention.sdpa_kernel(wrong).__enter__(), "Backend must be an instance of SDPBackend")


def test_packages_import_them_from_torch():
    with xgrad.as_torch(replace=True):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        with sdpa_kernel(SDPBackend.MATH):
            pass
    assert sdpa_kernel is xgrad.nn.attention.sdpa_kernel
