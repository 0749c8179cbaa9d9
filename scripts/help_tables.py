"""Words of the functions' help that no declaration says: the shapes of layers and matrices, and where ideas are from.

Patterns are matched with a function's whole name, without its namespace.
"""

import re

# pattern: shapes.  L, H, W, D are lengths in space, N a batch, C channels; `...` stands for any number of dimensions.
SHAPES = {
    r"conv1d": "`input` (N, C_in, L) or (C_in, L), `weight` (C_out, C_in / groups, K), `bias` (C_out,); the result has "
    "C_out channels of (L + 2 padding - dilation (K - 1) - 1) // stride + 1 elements.",
    r"conv2d": "`input` (N, C_in, H, W) or (C_in, H, W), `weight` (C_out, C_in / groups, K_h, K_w), `bias` (C_out,); "
    "the result has C_out channels, and (H + 2 padding - dilation (K_h - 1) - 1) // stride + 1 rows.",
    r"conv3d": "`input` (N, C_in, D, H, W) or (C_in, D, H, W), `weight` (C_out, C_in / groups, K_d, K_h, K_w), `bias` "
    "(C_out,); each size of the result is (size + 2 padding - dilation (K - 1) - 1) // stride + 1.",
    r"conv_transpose[123]d": "`input` (N, C_in, ...) or (C_in, ...), `weight` (C_in, C_out / groups, ...), "
    "`bias` (C_out,); each size of the result is (size - 1) stride - 2 padding + dilation (K - 1) + output_padding + "
    "1.",
    r"linear": "`input` (..., in), `weight` (out, in) or (in,), `bias` (out,); the result is (..., out).",
    r"bilinear": "`input1` (..., in1), `input2` (..., in2), `weight` (out, in1, in2), `bias` (out,); the result is "
    "(..., out).",
    r"matmul": "two vectors (n,) give a number; matrices (..., n, m) and (..., m, p) give (..., n, p), with batch "
    "dimensions that broadcast; a vector stands for a matrix with one row (first argument) or one column.",
    r"mm": "(n, m) and (m, p) give (n, p).",
    r"bmm": "(B, n, m) and (B, m, p) give (B, n, p).",
    r"mv": "(n, m) and (m,) give (n,).",
    r"(dot|vdot|inner)": "two vectors (n,) give a number; `inner` sums over the last dimensions of any two tensors.",
    r"(outer|ger)": "(n,) and (m,) give (n, m).",
    r"addmm": "`mat1` (n, m), `mat2` (m, p); `input` broadcasts to the result, (n, p).",
    r"baddbmm": "`batch1` (B, n, m), `batch2` (B, m, p); `input` broadcasts to the result, (B, n, p).",
    r"addbmm": "`batch1` (B, n, m), `batch2` (B, m, p); `input` broadcasts to the result, (n, p).",
    r"addmv": "`mat` (n, m), `vec` (m,); `input` broadcasts to the result, (n,).",
    r"addr": "`vec1` (n,), `vec2` (m,); `input` broadcasts to the result, (n, m).",
    r"(inv|inverse|inv_ex|matrix_exp|matrix_power|cholesky|cholesky_ex|cholesky_inverse)": "square matrices "
    "(..., n, n), any batch dimensions; the result has the same shape (`info`: that of the batch).",
    r"(det|logdet|slogdet)": "square matrices (..., n, n); one number for each, (...).",
    r"(eigh|eig)": "square matrices (..., n, n); eigenvalues (..., n), eigenvectors (..., n, n) as columns.",
    r"(eigvalsh|eigvals)": "square matrices (..., n, n); the result is (..., n).",
    r"svd": "matrices (..., n, m); with k = min(n, m): U (..., n, k), S (..., k), V (..., m, k) (its conjugate "
    "transpose in `linalg.svd`); U and V are square if all are asked for.",
    r"svdvals": "matrices (..., n, m); the result is (..., min(n, m)).",
    r"qr": "matrices (..., n, m); with k = min(n, m): Q (..., n, k), R (..., k, m); k = n for the complete one.",
    r"(solve|solve_ex)": "`A` (..., n, n), `B` (..., n, p) or (..., n); the result has the shape of `B`.",
    r"(solve_triangular|triangular_solve|cholesky_solve|lu_solve|ldl_solve)": "square factors (..., n, n) and "
    "right-hand sides (..., n, p); the result has the shape of these.",
    r"(lu_factor|lu_factor_ex|lu|ldl_factor|ldl_factor_ex)": "matrices (..., n, m); the factors have the same shape, "
    "pivots (..., min(n, m)).",
    r"lstsq": "`A` (..., n, m), `B` (..., n, p); the solution is (..., m, p).",
    r"(pinv|pinverse)": "matrices (..., n, m); the result is (..., m, n).",
    r"(layer_norm|rms_norm)": "`input` ends in `normalized_shape`, which `weight` and `bias` have; the result has the "
    "shape of `input`.",
    r"(batch_norm|instance_norm|group_norm)": "`input` (N, C, ...), the other tensors (C,); the result has the "
    "shape of `input`.",
    r"(max|avg|lp)_pool1d(_with_indices)?": "`input` (N, C, L) or (C, L); the result has (L + 2 padding - K) // stride "
    "+ 1 elements.",
    r"(max|avg|lp)_pool2d(_with_indices)?": "`input` (N, C, H, W) or (C, H, W); each size of the result is (size + 2 "
    "padding - K) // stride + 1.",
    r"(max|avg|lp)_pool3d(_with_indices)?": "`input` (N, C, D, H, W) or (C, D, H, W); each size of the result is (size "
    "+ 2 padding - K) // stride + 1.",
    r"(adaptive|fractional)_\w*pool\dd(_with_indices)?": "`input` (N, C, ...) or (C, ...); the result is (N, C, ...), "
    "of `output_size`.",
    r"embedding": "`input` (...) of indices, `weight` (rows, size); the result is (..., size).",
    r"embedding_bag": "`input` (bags, n), or (n,) with `offsets` (bags,); `weight` (rows, size); the result is (bags, "
    "size).",
    r"scaled_dot_product_attention": "`query` (..., L, E), `key` (..., S, E), `value` (..., S, V), `attn_mask` "
    "broadcasts to (..., L, S); the result is (..., L, V).",
    r"multi_head_attention_forward": "`query` (L, N, E), `key` and `value` (S, N, E), or all without N; the result is "
    "(L, N, E), the weights (N, L, S).",
    r"(cross_entropy|nll_loss\w*)": "`input` (C,), (N, C) or (N, C, ...); `target` without C, or class "
    "probabilities of the shape of `input`; a number, or with `reduction='none'` one for each target.",
    r"ctc_loss": "`log_probs` (T, N, C) or (T, C); `targets` (N, S) or their sum of lengths; a number, or one for each "
    "of N.",
    r"(\w*_loss|huber_loss|kl_div|binary_cross_entropy\w*)": "the tensors broadcast together; a number, or with "
    "`reduction='none'` one for each element (for each example, where examples are compared).",
    r"one_hot": "`tensor` of any shape; the result has a last dimension of `num_classes` more.",
    r"interpolate|upsample\w*": "`input` (N, C, ...); the result is (N, C, ...), of `size`.",
    r"grid_sample\w*": "`input` (N, C, H, W), `grid` (N, h, w, 2): the result is (N, C, h, w); with depth likewise.",
    r"affine_grid\w*": "`theta` (N, 2, 3) for `size` (N, C, H, W): (N, H, W, 2); with depth likewise.",
    r"pixel_shuffle": "(..., C r², H, W) gives (..., C, H r, W r).",
    r"pixel_unshuffle": "(..., C, H r, W r) gives (..., C r², H, W).",
    r"(cat|concat|concatenate)": "tensors of one shape but for `dim`, along which they are joined; a tensor (0,) is "
    "left out.",
    r"stack": "tensors of one shape; the result has a new dimension `dim`, of their number.",
    r"gather": "`input` and `index` have the same number of dimensions; the result has the shape of `index`.",
    r"(index_select)": "`index` (n,); the result has n elements in `dim`, and the other sizes of `input`.",
    r"(scatter|scatter_add|scatter_reduce)": "`input`, `index` and `src` have the same number of dimensions, `index` "
    "no size greater than theirs but in `dim`; the result has the shape of `input`.",
    r"cdist": "(..., n, m) and (..., p, m) give (..., n, p).",
    r"einsum": "as the equation says.",
    r"topk": "`k` elements in `dim`, and the other sizes of `input`.",
    r"(rand|randn|zeros|ones|empty|full)": "the sizes that are passed.",
    r"\w+_like": "the shape of `input`.",
    r"(stft)": "`input` (N, L) or (L,); (N, frequencies, frames), complex.",
    r"(eye)": "(n, m), or (n, n).",
    r"(add|sub|subtract|rsub|div|divide|true_divide|pow|where|isclose|normal|binomial|index_fill)": "the tensors "
    "broadcast together; the result has their common shape.",
    r"(log_softmax|softmax|softmin|gumbel_softmax|relu|rrelu|prelu|\w*dropout|positive|detach|alias|real|imag|"
    r"conj\w*|resolve_\w+|flip|roll|fliplr|flipud|msort|normalize|local_response_norm|renorm|polygamma|poisson|"
    r"bernoulli|alias_copy|detach_copy|gradient)": "`input` has any shape, and each result has the same.",
    r"(cummax|cummin|sort|frexp)": "`input` has any shape, and each result has the same.",
    r"index_(add|copy|reduce)": "`index` (n,), and `source` as `input`, but with n elements in `dim`; the result has "
    "the shape of `input`.",
    r"index_put": "`indices` broadcast together, `values` to the shape of what they select; the result has the shape "
    "of `input`.",
    r"(put|masked_scatter)": "`source` has as many elements as are written; the result has the shape of `input`.",
    r"(select|slice|diagonal|as_strided)_scatter": "`src` has the shape of the part; the result has that of `input`.",
    r"masked_select": "`input` and `mask` broadcast together; the result (n,) has the elements at n places.",
    r"(nonzero|argwhere)": "(n, d), for n elements that are not zero of a tensor with d dimensions.",
    r"take": "the result has the shape of `index`, which counts the elements of the flattened `input`.",
    r"(t|adjoint|transpose|swapaxes|swapdims|t_copy|transpose_copy)": "the sizes of two dimensions change places.",
    r"(permute|permute_copy|movedim|moveaxis)": "the sizes of `input` in another order.",
    r"(reshape|view|view_copy|unflatten|flatten|ravel|view_as|reshape_as)": "another shape with as many elements.",
    r"(narrow|narrow_copy)": "`length` elements in `dim`, and the other sizes of `input`.",
    r"(\w*split\w*|\w*chunk)": "the pieces' sizes in `dim` add up to that of `input`; the others are its own.",
    r"(select|unbind)(_copy)?": "the shape of `input` without `dim`.",
    r"unsqueeze(_copy)?": "the shape of `input` with a 1 at `dim`.",
    r"squeeze(_copy)?": "the shape of `input` without its sizes of 1, or without those in `dim`.",
    r"(expand|broadcast_to|expand_copy)": "`size`, to which the shape of `input` broadcasts.",
    r"(diagonal|diagonal_copy)": "the shape of `input` without `dim1` and `dim2`, and a last size for the diagonal.",
    r"diag": "(n,) gives (n, n), larger for a `diagonal` that is not 0; (n, m) gives its diagonal.",
    r"(trace|dist|count_nonzero|matrix_rank|cond)": "a number (one for each matrix, or along `dim`, where there is).",
    r"kron": "(n, m) and (p, q) give (n p, m q).",
    r"(cosine_similarity|pairwise_distance|vecdot)": "the tensors broadcast together; the result lacks `dim`.",
    r"cross": "the tensors broadcast together, and have 3 elements in `dim`; so has the result.",
    r"pdist": "(n, m) gives (n (n - 1) / 2,).",
    r"(cov|corrcoef)": "n variables with m observations (n, m) give (n, n).",
    r"(unique|unique_consecutive)": "(n,) for n distinct elements; along `dim`, n slices.",
    r"(searchsorted|bucketize)": "the result has the shape of the values that are looked up.",
    r"bincount": "(n,) gives (max(minlength, greatest + 1),).",
    r"(rnn_tanh|rnn_relu|gru|lstm)_cell": "`input` (N, in), `hx` (N, hidden), `w_ih` (k hidden, in), `w_hh` (k hidden, "
    "hidden) with k = 1, for gru 3, for lstm 4; each result is (N, hidden).",
    r"tile|repeat": "each size of `input` times the repetitions, which may have more dimensions.",
}  # fmt: skip

# pattern: the paper that describes the function.
PAPERS = {
    r"(gelu)": "Hendrycks and Gimpel, Gaussian error linear units, 2016",
    r"(silu)": "Elfwing, Uchibe and Doya, Sigmoid-weighted linear units, 2018",
    r"mish": "Misra, Mish: a self regularized non-monotonic activation function, 2019",
    r"(elu)": "Clevert, Unterthiner and Hochreiter, Fast and accurate deep network learning by ELUs, 2016",
    r"(selu|alpha_dropout|feature_alpha_dropout)": "Klambauer et al., Self-normalizing neural networks, 2017",
    r"celu": "Barron, Continuously differentiable exponential linear units, 2017",
    r"prelu": "He et al., Delving deep into rectifiers, 2015",
    r"rrelu": "Xu et al., Empirical evaluation of rectified activations in convolutional networks, 2015",
    r"hardswish": "Howard et al., Searching for MobileNetV3, 2019",
    r"(dropout|feature_dropout)": "Srivastava et al., Dropout: a simple way to prevent neural networks from "
    "overfitting, 2014",
    r"dropout[123]d": "Tompson et al., Efficient object localization using convolutional networks, 2015",
    r"batch_norm": "Ioffe and Szegedy, Batch normalization, 2015",
    r"layer_norm": "Ba, Kiros and Hinton, Layer normalization, 2016",
    r"group_norm": "Wu and He, Group normalization, 2018",
    r"instance_norm": "Ulyanov, Vedaldi and Lempitsky, Instance normalization, 2016",
    r"rms_norm": "Zhang and Sennrich, Root mean square layer normalization, 2019",
    r"local_response_norm": "Krizhevsky, Sutskever and Hinton, ImageNet classification with deep convolutional neural "
    "networks, 2012",
    r"ctc_loss": "Graves et al., Connectionist temporal classification, 2006",
    r"smooth_l1_loss": "Girshick, Fast R-CNN, 2015",
    r"huber_loss": "Huber, Robust estimation of a location parameter, 1964",
    r"triplet_margin_loss": "Balntas et al., Learning local feature descriptors with triplets, 2016",
    r"(scaled_dot_product_attention|multi_head_attention_forward)": "Vaswani et al., Attention is all you need, 2017",
    r"gumbel_softmax": "Jang, Gu and Poole, 2017; Maddison, Mnih and Teh, 2017",
    r"(grid_sample|affine_grid)": "Jaderberg et al., Spatial transformer networks, 2015",
    r"fractional_max_pool\dd": "Graham, Fractional max-pooling, 2014",
    r"pixel_shuffle": "Shi et al., Real-time single image super-resolution, 2016",
    r"(lstm|lstm_cell)": "Hochreiter and Schmidhuber, Long short-term memory, 1997",
    r"(gru|gru_cell)": "Cho et al., Learning phrase representations using RNN encoder-decoder, 2014",
    r"(svd_lowrank|pca_lowrank)": "Halko, Martinsson and Tropp, Finding structure with randomness, 2011",
    r"lobpcg": "Knyazev, Toward the optimal preconditioned eigensolver, 2001",
    r"adaptive_log_softmax_with_loss": "Grave et al., Efficient softmax approximation for GPUs, 2017",
}  # fmt: skip


def look_up(table: dict[str, str], name: str) -> str:
    """Return the words of a table for a function, or ""."""
    return next((words for pattern, words in table.items() if re.fullmatch(pattern, name)), "")
