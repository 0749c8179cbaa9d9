"""multi_head_attention_forward and fractional pooling."""

import numpy as np
import pytest

import xgrad

from .derivatives import agree, numbers

Q, K = numbers(3, 2, 4), numbers(5, 2, 4, seed=1)
PACKED, OUT, BIAS = numbers(12, 4, seed=2), numbers(4, 4, seed=3), numbers(12, seed=4)


def attend(lib, q, k, packed, out, *bias, **options):
    given = [packed, bias[0] if bias else None, None, None, False, 0.0, out, None]
    found = lib.nn.functional.multi_head_attention_forward(q, k, k, 4, 2, *given, **options)
    return tuple(t for t in found if t is not None)


@pytest.mark.parametrize("options", [{}, {"need_weights": False}, {"average_attn_weights": False}])
def test_attention_by_heads(options):
    agree(lambda lib, *xs: attend(lib, *xs, **options), Q, K, PACKED, OUT, BIAS, order=1, forward=False)
    agree(lambda lib, *xs: attend(lib, *xs, **options), Q[:, 0], K[:, 0], PACKED, OUT, order=0, forward=False)


@pytest.mark.parametrize("weights", [True, False])
def test_masks_of_attention(weights):
    causal, padding = np.triu(np.ones((3, 5), bool), 2), np.array([[False] * 5, [False] * 3 + [True] * 2])

    def masked(lib, q, k, packed, out, causal, padding):
        return attend(lib, q, k, packed, out, attn_mask=causal, key_padding_mask=padding, need_weights=weights)

    agree(
        lambda lib, *xs: masked(lib, *xs),
        Q,
        K,
        PACKED,
        OUT,
        np.where(causal, -9.0, 0),
        padding * 1.0,
        order=0,
        forward=False,
    )
    agree(masked, Q, K, PACKED, OUT, causal, padding, order=1, forward=False)


def test_separate_projections_biases_and_zeros():
    def separate(lib, q, k, w, out, first, last):
        return lib.nn.functional.multi_head_attention_forward(
            q, k, k, 4, 2, None, None, first, last, True, 0.0, out, None,
            use_separate_proj_weight=True, q_proj_weight=w, k_proj_weight=w, v_proj_weight=w,
        )  # fmt: skip

    agree(separate, Q, K, OUT, OUT, numbers(1, 1, 4), numbers(1, 1, 4, seed=5), order=1, forward=False)


def test_attention_refuses_what_does_not_fit():
    q, k, packed, out = (xgrad.tensor(x) for x in (Q, K, PACKED, OUT))
    with pytest.raises(RuntimeError, match="Need attn_mask if specifying the is_causal hint"):
        attend(xgrad, q, k, packed, out, is_causal=True)
    with pytest.raises(RuntimeError, match=r"The shape of the 2D attn_mask is \[3, 3\]"):
        attend(xgrad, q, k, packed, out, attn_mask=xgrad.zeros(3, 3, dtype=xgrad.float64))
    with pytest.raises(AssertionError, match="was expecting embedding dimension of 4, but got 3"):
        attend(xgrad, q[..., :3], k, packed, out)


@pytest.mark.parametrize("n", [2, 3])
def test_fractional_max_pool_of_given_distances(n):
    x, random = numbers(2, 2, *(7, 6, 5)[:n]), np.random.RandomState(1).random_sample((2, 2, n))

    def pool(lib, x, random):
        F = lib.nn.functional
        function = getattr(F, f"fractional_max_pool{n}d")
        sizes = {"output_size": (3, 2, 3)[:n], "return_indices": True}
        return function(x, 2, _random_samples=random.detach(), **sizes)

    agree(pool, x, random, order=1, forward=False)
    F = xgrad.nn.functional
    drawn = getattr(F, f"fractional_max_pool{n}d")(xgrad.tensor(x[0]), 2, output_ratio=0.5)
    assert drawn.shape == (2, *(s // 2 for s in x.shape[2:]))
    with pytest.raises(ValueError, match="requires specifying either an output_size or an output_ratio"):
        getattr(F, f"fractional_max_pool{n}d")(xgrad.tensor(x), 2)
    with pytest.raises(RuntimeError, match="too large relative to input"):
        getattr(F, f"fractional_max_pool{n}d")(xgrad.tensor(x), 5, output_size=6)
