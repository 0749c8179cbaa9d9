"""The types that make_stubs.py gives to arguments and results which the source has no type for.

A name of an argument nearly always means the same type, in PyTorch's documentation too: `ARGUMENTS` says it once.  The
other tables have the functions that differ.  Names of types are those of `xgrad/types.py`.
"""


def _each(table: dict[str, str]) -> dict[str, str]:
    """Turn {type: "name name ..."} into {name: type}."""
    return {name: kind for kind, names in table.items() for name in names.split()}


# Argument -> type.  `| None` is added where the default is None; a default that is a bool makes the type bool.
ARGUMENTS = _each({
    "Tensor": """
        A a abs anchor angle aweights B b b_hh b_ih batch1 batch2 bias boundaries condition elements fweights gradient
        grid hx imag index indices input input1 input2 L LD LU LU_data LU_pivots mask mat mat1 mat2 matrices negative
        out pivots pos_weight positive real running_mean running_var sorted_sequence sorter source src target tau
        tensor test_elements theta values var vec vec1 vec2 w_hh w_ih weight window X x x1 x2 y
    """,
    "Operand": "end exponent max min other tensor1 tensor2 value",
    "Number": "alpha beta correction fill_value lambd lower margin maxnorm s step start threshold",
    "Tensors": "tensors inputs",
    "bool": """
        accumulate align_corners align_to_window assume_unique center cudnn_enable cudnn_enabled descending equal_nan
        full full_matrices hermitian inplace invert keepdim largest left onesided pivot return_complex size_average
        sorted sparse_grad stable swap unpack_data unpack_pivots upper
    """,
    "int": """
        blank decimals diagonal dim dim0 dim1 dim2 divisor_override downscale_factor groups high hop_length k length
        low N n n_fft num_classes num_groups offset quant_max quant_min upscale_factor win_length
    """,
    "float": """
        atol base delta dx eps max_norm max_val min_val momentum nan negative_slope neginf norm_type p posinf rcond
        rtol
    """,
    "str": "UPLO approximate driver equation mode norm pad_mode padding_mode reduction side compute_mode",
    "Sizes": "dims normalized_shape pad physical_layout size sizes",
    "IntOrSize": "blocksize destination dilation kernel_size output_padding output_size padding shifts stride",
    "DType": "dtype",
    "Device": "device",
    "Layout": "layout",
    "MemoryFormat": "memory_format",
    "Generator": "generator",
    "Any": "context data key memo obj options protocol self state tracker",
})  # fmt: skip

# Functions whose `dim` may be several dimensions.
_SEVERAL_DIMS = """
    all amax amin any count_nonzero frobenius_norm hash_tensor logsumexp mean nanmean nansum norm nuclear_norm std
    std_mean sum var var_mean linalg.matrix_norm linalg.norm linalg.vector_norm nn.functional.normalize
    special.logsumexp fft.fft2 fft.fftn fft.ifft2 fft.ifftn fft.rfft2 fft.rfftn fft.irfft2 fft.irfftn fft.hfft2
    fft.hfftn fft.ihfft2 fft.ihfftn fft.fftshift fft.ifftshift
"""
_POLYNOMIALS = """
    chebyshev_polynomial_t shifted_chebyshev_polynomial_t chebyshev_polynomial_u shifted_chebyshev_polynomial_u
    chebyshev_polynomial_v shifted_chebyshev_polynomial_v chebyshev_polynomial_w shifted_chebyshev_polynomial_w
    hermite_polynomial_h hermite_polynomial_he laguerre_polynomial_l legendre_polynomial_p
"""
# Functions that take a number in the place of `input`, as PyTorch's do.
_OF_NUMBERS = """
    add bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor bucketize div divide float_power
    floor_divide mul multiply pow remainder rsub searchsorted sub subtract true_divide xlogy special.xlog1py
    special.xlogy special.zeta
"""
_FFT_SIZES = " ".join(f"fft.{a}fft{b}" for a in ("", "i", "r", "ir", "h", "ih") for b in ("2", "n"))

# "function.argument" -> type, of all forms of the function: in place, as a method, in other namespaces.
EXCEPTIONS = (
    {f"{name}.dim": "IntOrSize" for name in _SEVERAL_DIMS.split()}
    | {f"{name}.input": "Operand" for name in _OF_NUMBERS.split()}
    | {f"special.{name}.{argument}": "Operand" for name in _POLYNOMIALS.split() for argument in ("input", "n")}
    | {f"{name}.s": "Sizes" for name in _FFT_SIZES.split()}
    | {
        "addcdiv.value": "Number", "addcmul.value": "Number", "constant_pad_nd.value": "Number",
        "threshold.value": "Number", "nn.functional.threshold.value": "Number", "scatter.value": "Number",
        "addcdiv.tensor1": "Tensor", "addcdiv.tensor2": "Tensor", "addcmul.tensor1": "Tensor",
        "addcmul.tensor2": "Tensor",
        "arange.end": "Number", "range.end": "Number", "linspace.start": "Number | Tensor",
        "linspace.end": "Number | Tensor", "logspace.start": "Number | Tensor", "logspace.end": "Number | Tensor",
        "as_strided.stride": "Sizes", "as_strided_scatter.stride": "Sizes", "empty_strided.stride": "Sizes",
        "new_empty_strided.stride": "Sizes",
        "bucketize.boundaries": "Tensor", "can_cast.from_": "DType", "can_cast.to": "DType",
        "conv_tbc.pad": "int", "cov.correction": "int", "dist.p": "Number", "renorm.p": "Number",
        "einsum.operands": "Tensor | Sequence[Tensor]", "index_put.indices": "Sequence[Tensor | None]",
        "index_put.values": "Operand",
        "frobenius_norm.dim": "IntOrSize", "lerp.weight": "Operand", "lerp.end": "Tensor",
        "linalg.cond.p": "float | str", "linalg.matrix_norm.ord": "float | str", "linalg.norm.ord": "float | str",
        "linalg.vector_norm.ord": "float", "linalg.matrix_rank.tol": "float | Tensor",
        "linalg.matrix_rank.atol": "float | Tensor", "linalg.matrix_rank.rtol": "float | Tensor",
        "linalg.pinv.atol": "float | Tensor", "linalg.pinv.rtol": "float | Tensor",
        "linalg.pinv.rcond": "float | Tensor", "pinverse.atol": "float | Tensor", "pinverse.rtol": "float | Tensor",
        "linalg.multi_dot.tensors": "Tensors", "linalg.tensorsolve.dims": "Sizes",
        **{f"{name}.other": "Tensor" for name in ("cross", "dist", "inner", "kron", "linalg.cross", "linalg.matmul",
                                                  "matmul", "ormqr", "vdot")},
        "masked_scatter.source": "Tensor", "moveaxis.source": "IntOrSize", "movedim.source": "IntOrSize",
        "mvlgamma.p": "int", "special.multigammaln.p": "int", "nn.functional.multi_margin_loss.p": "int",
        "nn.functional.gaussian_nll_loss.var": "Tensor | float",
        "nn.functional.interpolate.size": "IntOrSize", "nn.functional.upsample.size": "IntOrSize",
        "nn.functional.upsample_nearest.size": "IntOrSize", "nn.functional.upsample_bilinear.size": "IntOrSize",
        "nn.functional.interpolate.scale_factor": "float | Sequence[float]",
        "nn.functional.upsample.scale_factor": "float | Sequence[float]",
        "nn.functional.upsample_nearest.scale_factor": "float | Sequence[float]",
        "nn.functional.upsample_bilinear.scale_factor": "float | Sequence[float]",
        "nn.functional.local_response_norm.size": "int", "nn.functional.local_response_norm.k": "float",
        "nn.functional.local_response_norm.alpha": "float", "nn.functional.local_response_norm.beta": "float",
        "nn.functional.linear_cross_entropy.options": "LinearCrossEntropyOptions",
        "nonzero_static.size": "int", "nonzero_static.fill_value": "int",
        "norm.p": "float | str", "normal.mean": "float | Tensor", "normal.std": "float | Tensor",
        "pow.exponent": "Operand", "prelu.weight": "Tensor", "hash_tensor.mode": "int",
        "fake_quantize_per_channel_affine.axis": "int", "fake_quantize_per_channel_affine.scale": "Tensor",
        "fake_quantize_per_channel_affine.zero_point": "Tensor",
        "fake_quantize_per_tensor_affine.scale": "float | Tensor",
        "fake_quantize_per_tensor_affine.zero_point": "int | Tensor",
        "quantile.q": "float | Tensor", "nanquantile.q": "float | Tensor",
        "histogram.bins": "int | Tensor", "histogramdd.bins": "int | Sequence[int] | Sequence[Tensor]",
        "repeat_interleave.repeats": "int | Tensor", "isclose.other": "Tensor",
        "roll.dims": "IntOrSize", "scatter.reduce": "str", "scatter_reduce.reduce": "str",
        "index_reduce.reduce": "str", "scatter.src": "Tensor | Number", "searchsorted.side": "str",
        "tensordot.dims": "int | Sequence[Sequence[int]] | Tensor",
        "sparse_coo_tensor.indices": "Operand | Sequence[Any]", "sparse_coo_tensor.values": "Operand | Sequence[Any]",
        "lobpcg.tracker": "Callable[[Any], None]", "register_hook.hook": "Callable[[Tensor], Tensor | None]",
        "register_post_accumulate_grad_hook.hook": "Callable[[Tensor], Any]", "to.dtype": "DType",
        "split.split_size_or_sections": "IntOrSize", "split.split_size": "IntOrSize",
        "unravel_index.shape": "IntOrSize", "fill_.value": "Operand", "cdist.compute_mode": "str",
        "ctc_loss.input_lengths": "Sizes | Tensor", "ctc_loss.target_lengths": "Sizes | Tensor",
        "nn.functional.ctc_loss.input_lengths": "Sizes | Tensor",
        "nn.functional.ctc_loss.target_lengths": "Sizes | Tensor",
        "gradient.spacing": "Number | Sequence[Number] | Tensors", "gradient.dim": "IntOrSize",
        "result_type.tensor1": "Operand", "result_type.tensor2": "Operand",
        "isin.elements": "Tensor | Number", "isin.test_elements": "Tensor | Number",
        "pdist.p": "float", "cumulative_trapezoid.dx": "Number", "resize_.sizes": "int",
        "affine_grid_generator.size": "Sizes", "heaviside.values": "Tensor", "where.condition": "Tensor",
        "nn.functional.pad.pad": "Sizes", "masked_fill.value": "Operand", "norm.dim": "IntOrSize",
    }
    | {
        f"{name}{argument}": "Operand | Sequence[Any]"  # nested lists of numbers
        for name in ("sparse_compressed_tensor", "sparse_csr_tensor", "sparse_csc_tensor", "sparse_bsr_tensor",
                     "sparse_bsc_tensor")
        for argument in (".compressed_indices", ".plain_indices", ".values")
    }
)  # fmt: skip

# Deprecated arguments of losses that are two bools, and a word: `reduce` is a word in scatter and a bool here.
BOOLS_OF_LOSSES = ("reduce", "size_average")

# Function -> type of its result, where the source says Any.
RESULTS = _each({
    "return_types.linalg_cholesky_ex": "linalg.cholesky_ex",
    "return_types.linalg_inv_ex": "linalg.inv_ex",
    "return_types.linalg_ldl_factor": "linalg.ldl_factor",
    "return_types.linalg_ldl_factor_ex": "linalg.ldl_factor_ex",
    "return_types.linalg_lstsq": "linalg.lstsq",
    "return_types.linalg_lu_factor": "linalg.lu_factor",
    "return_types.linalg_lu_factor_ex": "linalg.lu_factor_ex",
    "return_types.linalg_solve_ex": "linalg.solve_ex",
    "return_types.mode": "mode",
    "return_types.qr": "qr",
    "return_types.svd": "svd",
    "return_types.histogram": "histogram",
    "return_types.histogramdd": "histogramdd",
    "Tensor": "std var narrow_copy ccol_indices col_indices crow_indices row_indices _indices _values",
    "tuple[Tensor, Tensor]": "std_mean var_mean lstm_cell",
    "tuple[Tensor, Tensor, Tensor]": "svd_lowrank pca_lowrank",
    "int": "_nnz __hash__",
    "str | Tensor": "type",
    "Iterator[Tensor]": "__iter__",
})  # fmt: skip
RESULTS |= {
    "__dlpack__": "Any",  # a capsule, which Python has no type for
    "__jax_array__": "jax.Array",
    "item": "int | float | bool",  # and complex, of a complex tensor: the type is PyTorch's
    "tolist": "Any",  # nested lists, or a number
    "__xgrad_function__": "Any",
    "__copy__": "Self",
    "__deepcopy__": "Self",
}

_PAIR = "tuple[Tensor, Tensor]"
_CREATION = (
    "dtype: DType | None = ..., layout: Layout | None = ..., device: Device | None = ..., requires_grad: bool = ..., "
    "pin_memory: bool = ..."
)
_POOL = (
    "kernel_size: IntOrSize, stride: IntOrSize | None = ..., padding: IntOrSize = ..., dilation: IntOrSize = ..., "
    "ceil_mode: bool = ..."
)
_LIKE = f"{_CREATION}, memory_format: MemoryFormat | None = ..., generator: Generator | None = ..."


def _with_indices(arguments: str) -> list[str]:
    """Overloads of a pooling: a tensor, or with `return_indices` two; never without naming the argument."""
    return [
        f"(input: Tensor, {arguments}, return_indices: Literal[False] = ...) -> Tensor",
        f"(input: Tensor, {arguments}, *, return_indices: Literal[True]) -> tuple[Tensor, Tensor]",
    ]


def _extremum(name: str) -> list[str]:
    pair = f"return_types.{name}"
    return [
        "(input: Tensor, *, out: Tensor | None = ...) -> Tensor",
        "(input: Tensor, other: Tensor, *, out: Tensor | None = ...) -> Tensor",
        f"(input: Tensor, dim: int, keepdim: bool = ..., *, out: Tensors | None = ...) -> {pair}",
    ]


def _median(name: str) -> list[str]:
    pair = f"return_types.{name}"
    return [
        "(input: Tensor) -> Tensor",
        f"(input: Tensor, dim: int, keepdim: bool = ..., *, out: Tensors | None = ...) -> {pair}",
    ]


def _cut(axis: str) -> list[str]:
    return [
        f"(input: Tensor, indices_or_sections: IntOrSize | Tensor{axis}) -> tuple[Tensor, ...]",
        f"(input: Tensor, *, sections: int{axis}) -> tuple[Tensor, ...]",
        f"(input: Tensor, *, indices: Sizes{axis}) -> tuple[Tensor, ...]",
    ]


def _distinct(first: str) -> list[str]:
    inverse, counts, dim = "return_inverse: Literal", "return_counts: Literal", "dim: int | None = ..."
    return [
        f"(input: Tensor, {first}{inverse}[False] = ..., {counts}[False] = ..., {dim}) -> Tensor",
        f"(input: Tensor, {first}*, {inverse}[True], {counts}[False] = ..., {dim}) -> {_PAIR}",
        f"(input: Tensor, {first}*, {inverse}[False] = ..., {counts}[True], {dim}) -> {_PAIR}",
        f"(input: Tensor, {first}*, {inverse}[True], {counts}[True], {dim}) -> tuple[Tensor, Tensor, Tensor]",
        f"(input: Tensor, {first}return_inverse: bool = ..., return_counts: bool = ..., {dim})"
        " -> Tensor | tuple[Tensor, ...]",
    ]


def _recurrent(states: str, results: str) -> list[str]:
    rest = (
        f"hx: {states}, params: Tensors, has_biases: bool, num_layers: int, dropout: float, train: bool, "
        "bidirectional: bool"
    )
    return [
        f"(input: Tensor, {rest}, batch_first: bool) -> {results}",
        f"(data: Tensor, batch_sizes: Tensor, {rest}) -> {results}",
    ]


_AT_LEAST = [
    "(tensor: Tensor, /) -> Tensor",
    "(first: Tensor, second: Tensor, /, *tensors: Tensor) -> tuple[Tensor, ...]",
    "(tensors: Tensors, /) -> tuple[Tensor, ...]",
]
_FRACTIONAL = (
    "kernel_size: IntOrSize, output_size: IntOrSize | None = ..., output_ratio: float | Sequence[float] | None = ..."
)
_SAMPLES = "_random_samples: Tensor | None = ..."
_ADAPTIVE = "output_size: int | Sequence[int | None]"
_RANDOM = "*, generator: Generator | None = ...) -> Tensor"

# Function -> its signatures in full: those whose result depends on the arguments, and those that take any of several.
SIGNATURES: dict[str, list[str]] = {
    "max": _extremum("max"),
    "min": _extremum("min"),
    "median": _median("median"),
    "nanmedian": _median("nanmedian"),
    "where": [
        "(condition: Tensor) -> tuple[Tensor, ...]",
        "(condition: Tensor, input: Operand, other: Operand, *, out: Tensor | None = ...) -> Tensor",
    ],
    "Tensor.where": ["(self, condition: Tensor, other: Operand) -> Tensor"],
    "nonzero": [
        "(input: Tensor, *, as_tuple: Literal[False] = ..., out: Tensor | None = ...) -> Tensor",
        "(input: Tensor, *, as_tuple: Literal[True]) -> tuple[Tensor, ...]",
    ],
    "unique": _distinct("sorted: bool = ..., "),
    "unique_consecutive": _distinct(""),
    "lu": [
        "(A: Tensor, pivot: bool = ..., get_infos: Literal[False] = ...) -> tuple[Tensor, Tensor]",
        "(A: Tensor, pivot: bool = ..., *, get_infos: Literal[True]) -> tuple[Tensor, Tensor, Tensor]",
    ],
    "size": ["(self) -> Size", "(self, dim: int) -> int"],
    "type": [
        "(self, dtype: None = ..., non_blocking: bool = ...) -> str",
        "(self, dtype: DType, non_blocking: bool = ...) -> Tensor",
    ],
    "arange": [
        f"(end: Number, *, out: Tensor | None = ..., {_CREATION}) -> Tensor",
        f"(start: Number, end: Number, step: Number = ..., *, out: Tensor | None = ..., {_CREATION}) -> Tensor",
    ],
    "randint": [
        f"(high: int, size: Sizes, *, generator: Generator | None = ..., out: Tensor | None = ..., {_CREATION})"
        " -> Tensor",
        f"(low: int, high: int, size: Sizes, *, generator: Generator | None = ..., out: Tensor | None = ..., "
        f"{_CREATION}) -> Tensor",
    ],
    "randint_like": [
        f"(input: Tensor, high: int, *, {_LIKE}) -> Tensor",
        f"(input: Tensor, low: int, high: int, *, {_LIKE}) -> Tensor",
    ],
    "repeat_interleave": [
        "(input: Tensor, repeats: int | Tensor, dim: int | None = ..., *, output_size: int | None = ...) -> Tensor",
        "(repeats: Tensor, *, output_size: int | None = ...) -> Tensor",
    ],
    "tensor_split": _cut(", dim: int = ..."),
    "rnn_tanh": _recurrent("Tensor", _PAIR),
    "rnn_relu": _recurrent("Tensor", _PAIR),
    "gru": _recurrent("Tensor", _PAIR),
    "lstm": _recurrent("Tensors", "tuple[Tensor, Tensor, Tensor]"),
    "hsplit": _cut(""),
    "vsplit": _cut(""),
    "dsplit": _cut(""),
    "atleast_1d": _AT_LEAST,
    "atleast_2d": _AT_LEAST,
    "atleast_3d": _AT_LEAST,
    "block_diag": ["(*tensors: Tensor) -> Tensor"],
    "cartesian_prod": ["(*tensors: Tensor) -> Tensor"],
    "broadcast_tensors": ["(*tensors: Tensor | Tensors) -> tuple[Tensor, ...]"],
    "broadcast_shapes": ["(*shapes: IntOrSize) -> Size"],
    "meshgrid": ["(*tensors: Tensor | Tensors, indexing: str = ...) -> tuple[Tensor, ...]"],
    "einsum": ["(equation: str, *operands: Tensor | Tensors) -> Tensor"],
    "view": ["(self, dtype: DType) -> Tensor", "(self, size: Sizes) -> Tensor", "(self, *size: int) -> Tensor"],
    "squeeze": ["(input: Tensor, dim: IntOrSize = ...) -> Tensor"],
    "to": [
        "(self, dtype: DType | Device, non_blocking: bool = ..., copy: bool = ..., *, memory_format: MemoryFormat | "
        "None = ...) -> Tensor",
        "(self, device: Device | None = ..., dtype: DType | None = ..., non_blocking: bool = ..., copy: bool = ..., *, "
        "memory_format: MemoryFormat | None = ...) -> Tensor",
        "(self, other: Tensor, non_blocking: bool = ..., copy: bool = ..., *, memory_format: MemoryFormat | None = ...)"
        " -> Tensor",
    ],
    "as_subclass": ["(self, cls: type[_Subclass]) -> _Subclass"],
    "new": ["(self, *args: Any, device: Device | None = ...) -> Tensor"],
    "special.logsumexp": [
        "(input: Tensor, dim: IntOrSize, keepdim: bool = ..., *, out: Tensor | None = ...) -> Tensor"
    ],
    "cauchy_": [f"(self, median: float = ..., sigma: float = ..., {_RANDOM}"],
    "exponential_": [f"(self, lambd: float = ..., {_RANDOM}"],
    "geometric_": [f"(self, p: float, {_RANDOM}"],
    "log_normal_": [f"(self, mean: float = ..., std: float = ..., {_RANDOM}"],
    "normal_": [f"(self, mean: float = ..., std: float = ..., {_RANDOM}"],
    "uniform_": [f"(self, a: float = ..., b: float = ..., /, {_RANDOM}"],
    "random_": [f"({_RANDOM}".replace("(*", "(self, *"), f"(self, to: int, {_RANDOM}",
                f"(self, low: int, to: int | None, /, {_RANDOM}"],
    "__getitem__": ["(self, index: Index) -> Tensor"],
    "__setitem__": ["(self, index: Index, value: Operand) -> None"],
    "__eq__": ["(self, other: Any) -> Tensor"],
    "__ne__": ["(self, other: Any) -> Tensor"],
    "empty_strided": [f"(size: Sizes, stride: Sizes, *, {_CREATION}) -> Tensor"],
    "empty_permuted": [f"(size: Sizes, physical_layout: Sizes, *, {_CREATION}) -> Tensor"],
    "new_empty_strided": [f"(self, size: Sizes, stride: Sizes, *, {_CREATION}) -> Tensor"],
    **{f"max_pool{n}d": _with_indices(_POOL) for n in (1, 2, 3)},
    **{f"nn.functional.max_pool{n}d": _with_indices(_POOL) for n in (1, 2, 3)},
    **{
        f"{place}max_pool{n}d_with_indices": [f"(input: Tensor, {_POOL}, return_indices: bool = ...) -> {_PAIR}"]
        for place in ("", "nn.functional.")
        for n in (1, 2, 3)
    },
    **{
        f"nn.functional.fractional_max_pool{n}d": [
            f"(input: Tensor, {_FRACTIONAL}, return_indices: Literal[False] = ..., {_SAMPLES}) -> Tensor",
            f"(input: Tensor, {_FRACTIONAL}, *, return_indices: Literal[True], {_SAMPLES}) -> {_PAIR}",
        ]
        for n in (2, 3)
    },
    **{
        f"nn.functional.fractional_max_pool{n}d_with_indices": [
            f"(input: Tensor, {_FRACTIONAL}, return_indices: bool = ..., {_SAMPLES}) -> {_PAIR}"
        ]
        for n in (2, 3)
    },
    **{f"nn.functional.adaptive_max_pool{n}d": _with_indices(_ADAPTIVE) for n in (1, 2, 3)},
    **{
        f"nn.functional.adaptive_max_pool{n}d_with_indices": [f"(input: Tensor, {_ADAPTIVE}) -> {_PAIR}"]
        for n in (1, 2, 3)
    },
}  # fmt: skip
