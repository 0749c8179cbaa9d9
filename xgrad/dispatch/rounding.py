"""rounds_once: decides whether an operator computes half precision in float32, for its results and for its gradients.

Results: differentiable operators, except those that are pointwise, move elements, cast or compare; also a few that sum
without a derivative.  Gradients: pointwise operators and moves too.  execution/programs/half.py computes so, and rounds
once.

Where a result is an operand's element, or a comparison of operands, float32 has nothing to add: a cast of a table from
which three rows are read costs memory, and a bound of 0.1 would no longer be the bfloat16 that equals it.
"""


def _named(text: str) -> frozenset[str]:
    return frozenset(text.split())


# They move elements of large operands, or are in float32 where it counts.  Gradients are sums.
_MOVES = _named("""
    cat clone constant_pad_nd copy cummax cummin embedding gather index index_copy index_fill index_put index_select
    ldexp linear_cross_entropy masked_fill masked_scatter max_pool1d max_pool1d_with_indices max_pool2d
    max_pool2d_with_indices max_pool3d max_pool3d_with_indices pad_nd put scaled_dot_product_attention scatter sort
    stack take topk unfold
""")

# They cast, compare, or step from number to number; random ones draw in the dtype of the result.
_EXACT = _named("""
    _constrain _fit _to_dtype alpha_dropout bernoulli binomial cauchy clamp clamp_max clamp_min copysign dropout
    exponential fake_quantize_per_channel_affine fake_quantize_per_tensor_affine fill floor_divide fmax fmin fmod frexp
    geometric hardshrink hardtanh heaviside log_normal maximum minimum nan_to_num nextafter normal poisson random
    remainder rrelu_with_noise uniform where zero
""")

# Without derivative, but they sum.
_SUMS = frozenset(("embedding_renorm", "histc", "histogramdd", "running_statistic"))


def rounds_once(name: str, differentiable: bool, pointwise: bool) -> tuple[bool, bool]:
    """Return whether an operator's results are computed in float32, and whether its gradients are."""
    sums = name in _SUMS or (differentiable and name not in _EXACT)
    return sums and not pointwise and name not in _MOVES, sums
