"""Which operators of the table compute half precision in float32 (`compile_cache/half.py`): all but the ones named here.

Where a result is an operand's element, or a comparison of operands, float32 has nothing to add: copies of a table
from which three rows are read cost memory, and a bound of 0.1 would no longer be the bfloat16 that equals it.
"""

# Their results are elements of the operands.  Gradients are sums, of elements that were read twice.
_MOVES = frozenset("""
    _masked _repeated _unique _unique_consecutive adaptive_max_pool1d_with_indices
    adaptive_max_pool2d_with_indices adaptive_max_pool3d_with_indices amax amin aminmax block_diag cat channel_shuffle
    clone conj_physical constant_pad_nd copy cummax cummin diag_embed embedding flip fractional_max_pool gather index
    index_copy index_fill index_put index_select kthvalue ldexp linear_cross_entropy masked_fill masked_scatter max.all
    max.dim max_pool1d max_pool1d_with_indices max_pool2d max_pool2d_with_indices max_pool3d max_pool3d_with_indices
    max_unpool1d max_unpool2d max_unpool3d median.all median.dim min.all min.dim mode.dim nanmedian.all nanmedian.dim
    pad_nd pixel_shuffle pixel_unshuffle put repeat roll rot90 scaled_dot_product_attention scatter sort stack take topk
    tril triu unfold
""".split())  # fmt: skip

# They compare, or step from number to number; random ones draw in the dtype of the result.
_EXACT = frozenset("""
    _constrain _fit _to_dtype alpha_dropout bernoulli binomial cauchy ceil clamp clamp_max clamp_min copysign dropout exponential
    fake_quantize_per_channel_affine fake_quantize_per_tensor_affine fill floor floor_divide fmax fmin fmod frexp
    geometric hardshrink hardtanh heaviside log_normal maximum minimum nan_to_num nextafter normal poisson random
    remainder round rrelu_with_noise sgn sign trunc uniform where zero
""".split())  # fmt: skip

# Without derivative, but they sum.
_SUMS = frozenset(("embedding_renorm", "histc", "histogramdd", "running_statistic"))


def rounds_once(name: str, differentiable: bool, pointwise: bool) -> tuple[bool, bool]:
    """Tell if an operator's results are computed in float32, and if its gradients are."""
    sums = name in _SUMS or (differentiable and name not in _EXACT)
    return sums and not pointwise and name not in _MOVES, sums
