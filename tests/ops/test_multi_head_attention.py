"""multi_head_attention_forward against PyTorch: projections, masks, additional keys, weights of attention, errors."""

import numpy as np
import pytest
import torch

import xgrad
import xgrad.nn.functional as F

from .agreement import agree, random

LENGTH, SOURCE, BATCH, SIZE, HEADS = 3, 5, 2, 4, 2
PADDED = np.zeros((BATCH, SOURCE), bool)
PADDED[0, 3:] = True
CAUSAL = np.triu(np.ones((LENGTH, SOURCE), bool), 1)
EACH = random(BATCH * HEADS, LENGTH, SOURCE, seed=20)
STATIC = random(BATCH * HEADS, SOURCE, SIZE // HEADS, seed=21)


def _arguments(**options):
    """(arrays, names of the keyword arguments that are arrays, the others)."""
    given = {
        "query": random(LENGTH, BATCH, SIZE), "key": random(SOURCE, BATCH, SIZE, seed=1),
        "value": random(SOURCE, BATCH, SIZE, seed=2), "in_proj_weight": random(3 * SIZE, SIZE, seed=3),
        "in_proj_bias": random(3 * SIZE, seed=4), "out_proj_weight": random(SIZE, SIZE, seed=5),
        "out_proj_bias": random(SIZE, seed=6), "bias_k": None, "bias_v": None, "add_zero_attn": False,
        "dropout_p": 0.0, "embed_dim_to_check": SIZE, "num_heads": HEADS, **options,
    }  # fmt: skip
    arrays = {k: v for k, v in given.items() if isinstance(v, np.ndarray)}
    return list(arrays.values()), list(arrays), {k: v for k, v in given.items() if k not in arrays}


def _agrees(weights=True, order=1, **options):
    arrays, names, others = _arguments(need_weights=weights, **options)

    def run(f, *tensors):
        out, attention = f.multi_head_attention_forward(**dict(zip(names, tensors)), **others)
        if attention is None:
            return out
        library = torch if f is torch.nn.functional else xgrad
        return library.cat([out.flatten(), attention.flatten()])

    agree(run, *arrays, order=order)


ONE_MORE = {"bias_k": random(1, 1, SIZE, seed=7), "bias_v": random(1, 1, SIZE, seed=8)}
SEPARATE = {
    "use_separate_proj_weight": True, "in_proj_weight": None, "q_proj_weight": random(SIZE, SIZE, seed=9),
    "k_proj_weight": random(SIZE, 6, seed=10), "v_proj_weight": random(SIZE, 7, seed=11),
    "key": random(SOURCE, BATCH, 6, seed=12), "value": random(SOURCE, BATCH, 7, seed=13),
}  # fmt: skip
UNBATCHED = {name: random(n, SIZE, seed=n) for name, n in (("query", LENGTH), ("key", SOURCE), ("value", SOURCE))}


@pytest.mark.one_in(6)
@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {"in_proj_bias": None, "out_proj_bias": None},
        {"key_padding_mask": PADDED, "attn_mask": CAUSAL},
        {"attn_mask": CAUSAL, "is_causal": True},
        {"attn_mask": EACH, "key_padding_mask": PADDED * -1.5, "add_zero_attn": True, **ONE_MORE},
        {"static_k": STATIC, "static_v": STATIC + 1, "average_attn_weights": False},
        SEPARATE,
        {**UNBATCHED, "key_padding_mask": PADDED[0]},
    ],
    ids=["no_bias", "masks", "causal", "more_keys", "static", "separate", "unbatched"],
)
@pytest.mark.filterwarnings("ignore:.*mismatched")
def test_attention_of_several_heads(weights, options):
    _agrees(weights, **options)


def test_second_derivatives():
    _agrees(order=2)


@pytest.mark.exhaustive
def test_self_attention_projects_once():
    x, *weights = (xgrad.tensor(random(*s)) for s in ((SOURCE, BATCH, SIZE), (3 * SIZE, SIZE), (SIZE, SIZE)))
    given = (SIZE, HEADS, weights[0], None, None, None, False, 0.0, weights[1], None)
    once = F.multi_head_attention_forward(x, x, x, *given)
    again = F.multi_head_attention_forward(x, x.clone(), x.clone(), *given)
    for a, b in zip(once, again, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9)


@pytest.mark.exhaustive
def test_dropout_only_in_training():
    arrays, names, others = _arguments(dropout_p=1.0)
    tensors = dict(zip(names, map(xgrad.tensor, arrays)))
    out, weights = F.multi_head_attention_forward(**tensors, **others)
    assert not weights.numpy().any()
    np.testing.assert_allclose(out.numpy(), np.broadcast_to(tensors["out_proj_bias"].numpy(), out.shape))
    assert F.multi_head_attention_forward(**tensors, **others, training=False)[1].numpy().all()


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"embed_dim_to_check": 5}, AssertionError, "was expecting embedding dimension of 5, but got 4"),
        ({"num_heads": 3}, AssertionError, "embed_dim 4 not divisible by num_heads 3"),
        ({"value": random(6, 2, 4)}, AssertionError, "does not match value shape"),
        ({"query": random(1, 3, 2, 4)}, AssertionError, "unbatched 2D or batched 3D"),
        ({"key": random(5, 4)}, AssertionError, "expected `key` and `value` to be 3-D but found 2-D and 3-D"),
        ({"key": random(5, 3, 4), "value": random(5, 3, 4)}, RuntimeError, "is invalid"),
        ({"key_padding_mask": PADDED[0]}, AssertionError, "expected `key_padding_mask` to be `None` or 2-D"),
        ({"key_padding_mask": PADDED[:, 1:]}, AssertionError, "to be 5, but got 4"),
        ({"attn_mask": PADDED[0]}, AssertionError, "to be `None`, 2-D or 3-D but found 1-D"),
        ({"attn_mask": CAUSAL.T}, RuntimeError, "The shape of the 2D attn_mask is .* but should be"),
        ({"attn_mask": EACH[1:]}, RuntimeError, "The shape of the 3D attn_mask is .* but should be"),
        ({"attn_mask": CAUSAL.astype(int)}, AssertionError, "only bool and floating types of attn_mask are supported"),
        ({"is_causal": True}, RuntimeError, "Need attn_mask if specifying the is_causal hint"),
        ({"bias_k": ONE_MORE["bias_k"]}, AssertionError, "bias_k is set but bias_v is None"),
        ({"static_k": STATIC, **ONE_MORE}, AssertionError, "bias cannot be added to static key"),
        ({"static_v": STATIC[1:]}, AssertionError, r"expecting static_v.size\(0\) of 4, but got 3"),
        ({**SEPARATE, "k_proj_weight": None}, AssertionError, "True but k_proj_weight is None"),
        ({**SEPARATE, "q_proj_weight": STATIC[0]}, AssertionError, "expecting query weights shape of"),
        ({"in_proj_weight": None}, AssertionError, "False but in_proj_weight is None"),
        ({"dropout_p": 1.5}, ValueError, "between 0 and 1, but got 1.5"),
    ],
)
def test_attention_refuses_what_does_not_fit(options, error, text):
    arrays, names, others = _arguments(**options)
    for library in (torch, xgrad):
        with pytest.raises(error, match=text):
            library.nn.functional.multi_head_attention_forward(
                **dict(zip(names, map(library.tensor, arrays))), **others
            )
