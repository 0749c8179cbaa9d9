"""Stands in for PyTorch names that xgrad does not support: a call raises, with the reason and an alternative.

Looking up such a name returns a class that raises `NotImplementedError` when it is called; so code that only mentions
the name runs.  Names of values (a dtype, a layout) raise when they are looked up.  The `__getattr__` of
the namespaces looks functions up here; Python calls it only for names that the namespace does not have.
"""

import copyreg
import sys
from abc import ABCMeta
from functools import cache
from types import FrameType, FunctionType
from typing import Any

_QUANTIZED = (
    "XLA has no quantized tensors",
    "Keep integers and their scale yourself: q = (x / scale + zero_point).round().clamp(0, 255).to(xgrad.uint8).",
)
_BACKEND = (
    "it calls a library that XLA does not use",
    "Use the operator of xgrad.nn.functional: XLA picks the kernel.",
)
_NESTED = (
    "XLA needs the shape of an array before it runs, and a nested or jagged tensor has none",
    "Use a padded tensor with a mask (xgrad.masked), or segment_reduce with lengths.",
)
_COMPRESSED = (
    "sparse tensors here do what gradients and products need",
    "Use xgrad.sparse.mm, or call to_dense() first.",
)
_PARTS = ("indices are handed out as what nobody else can write to", "Use the method, x.crow_indices().")
_SPARSE = ("sparse_coo tensors here do what sparse gradients need", "Call to_dense() first.")
_NAMED = ("dimensions have no names here", "Use numbers; einsum and xgrad.func.vmap name dimensions where it helps.")
_SOURCE = ("it compiles C++ source for CUDA", "Write the function with operators and wrap it in jax.jit.")
_SCALED = (
    "it calls cuBLAS's matrix products of scaled float8",
    "Convert and scale: (a.to(xgrad.bfloat16) @ b.to(xgrad.bfloat16)) * scale_a * scale_b.",
)
_ATTENTION = (
    "it is the CUDA kernel behind attention",
    "Use nn.functional.scaled_dot_product_attention: XLA chooses how to run it.",
)
_MEMORY = (
    "XLA's arrays show no memory to Python",
    "Use numpy(), clone(), x.data = y, and untyped_storage(), which shows what shares memory.",
)
_PYTHON = ("it runs Python for each element", "Use operators, or xgrad.from_numpy(numpy.vectorize(f)(x.numpy())).")
STREAMS = (
    "XLA orders its work by itself: there are no streams",
    "Leave it out; a declared backend with a Cost has streams, in simulated time.",
)
_COMPLEX32 = ("XLA has no arrays of complex32", "Use complex64: xgrad.complex64, or cfloat().")
_HUB = ("it downloads code and runs it", "Download the weights yourself, and read them with xgrad.load.")
_FX = ("functions are traced by JAX here", "Use jax.make_jaxpr with xgrad.to_jax(f), or xgrad.compile(f).lower(x).")
_EXPORT = ("programs are exported by JAX here", "Use jax.export with xgrad.to_jax(f).")
_QUANTIZATION = (_QUANTIZED[0], "Train with xgrad.fake_quantize_per_tensor_affine, and round the weights yourself.")
_PROCESSES = ("JAX's arrays cannot be shared between processes", "Use Python's multiprocessing with NumPy arrays.")
_TORCHSCRIPT = ("TorchScript's files hold programs of its own", "Save the state_dict, and build the module in Python.")
_ONNX = ("xgrad has no exporter", "Export with jax.export, or jax2tf and tf2onnx, from xgrad.to_jax(f).")
_GRAPHS = ("XLA compiles whole steps", "Use xgrad.compile, whose programs take one launch.")
_COLLECTIVES = (
    "tensors are sharded over all devices, and XLA puts the transfers in",
    "Use xgrad.mesh with a PartitionSpec, and xgrad.distributed.from_local.",
)
_REMOVED = ("PyTorch has removed it", "Use the functions of xgrad.linalg: eig, eigh, lstsq, solve.")
_ROW_MAJOR = ("every array here is row-major", "It would be tuple(range(x.ndim)).")
_OTHER_DEVICES = ("the devices are those that JAX sees", "Use x.to(device); xgrad.devices() lists them.")
_MASKED_TENSOR = ("a tensor here has no mask of its own", "Give the mask to the functions of xgrad.masked.")

# (namespace, (reason, alternative), names); "Tensor" stands for the methods.
TABLE: tuple[tuple[str, tuple[str, str], str], ...] = (
    ("", _QUANTIZED, """
        dequantize empty_quantized
        fbgemm_linear_fp16_weight fbgemm_linear_fp16_weight_fp32_activation fbgemm_linear_int8_weight
        fbgemm_linear_int8_weight_fp32_activation fbgemm_linear_quantize_weight fbgemm_pack_gemm_matrix_fp16
        fbgemm_pack_quantized_matrix fused_moving_avg_obs_fake_quant int_repr q_per_channel_axis q_per_channel_scales
        q_per_channel_zero_points q_scale q_zero_point quantize_per_channel quantize_per_tensor
        quantize_per_tensor_dynamic quantized_batch_norm quantized_gru_cell quantized_lstm_cell quantized_max_pool1d
        quantized_max_pool2d quantized_max_pool3d quantized_rnn_relu_cell quantized_rnn_tanh_cell
        choose_qparams_optimized"""),
    ("Tensor", _QUANTIZED, """
        dequantize int_repr q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale q_zero_point
        qscheme"""),
    ("", _BACKEND, """
        cudnn_affine_grid_generator cudnn_batch_norm cudnn_convolution cudnn_convolution_add_relu cudnn_convolution_relu
        cudnn_convolution_transpose cudnn_grid_sampler miopen_batch_norm miopen_convolution miopen_convolution_add_relu
        miopen_convolution_relu miopen_convolution_transpose miopen_ctc_loss miopen_depthwise_convolution miopen_rnn
        mkldnn_adaptive_avg_pool2d mkldnn_convolution mkldnn_linear_backward_weights mkldnn_max_pool2d
        mkldnn_max_pool3d mkldnn_rnn_layer"""),
    ("Tensor", _BACKEND, "to_mkldnn"),
    ("", _NESTED, "nested _nested_tensor_from_mask _nested_tensor_from_tensor_list _nested_view_from_jagged"),
    ("Tensor", _NESTED, "to_padded_tensor"),
    ("", _PARTS, "ccol_indices_copy col_indices_copy crow_indices_copy row_indices_copy"),
    ("", _SPARSE, "hsmm hspmm saddmm smm sspaddmm resize_as_sparse_"),
    ("Tensor", _SPARSE, "smm sspaddmm sparse_resize_ sparse_resize_and_clear_ resize_as_sparse_"),
    ("sparse", _COMPRESSED, "sampled_addmm spsolve to_sparse_semi_structured"),
    ("sparse", _SPARSE, "softmax log_softmax spdiags"),
    ("Tensor", _NAMED, "align_as align_to refine_names rename rename_"),
    ("", _NAMED, "align_tensors"),
    ("", _SOURCE, """
        jiterator_unary jiterator_binary jiterator_4inputs_with_extra_args jiterator_binary_return_by_ref
        jiterator_2inputs_2outputs"""),
    ("", _SCALED, "_scaled_mm _scaled_mm_v2 _scaled_grouped_mm _scaled_grouped_mm_v2"),
    ("nn.functional", _SCALED, "scaled_mm scaled_grouped_mm"),
    ("", _ATTENTION, """
        _flash_attention_forward _efficient_attention_forward _scaled_dot_product_flash_attention
        _scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention"""),
    ("Tensor", _MEMORY, "map_ map2_ storage_type share_memory_"),
    ("Tensor", _PYTHON, "apply_"),
    ("Tensor", STREAMS, "record_stream"),
    ("Tensor", _COMPLEX32, "chalf"),
    ("Tensor", _REMOVED, "eig symeig lstsq solve"),
    ("Tensor", _ROW_MAJOR, "dim_order"),
    ("Tensor", _OTHER_DEVICES, "ipu mtia xpu"),
    ("", _HUB, "hub"),
    ("", _FX, "fx"),
    ("", _EXPORT, "export"),
    ("", _QUANTIZATION, "ao quantization"),
    ("", _PROCESSES, "multiprocessing"),
    ("", _ONNX, "onnx"),
    ("jit", _TORCHSCRIPT, "CompilationUnit RecursiveScriptModule load save jit_module_from_flatbuffer"),
    ("cuda", STREAMS, "Event ExternalStream Stream StreamContext current_stream default_stream set_stream stream"),
    ("cuda", _GRAPHS, "CUDAGraph graph graph_pool_handle make_graphed_callables"),
    ("accelerator", STREAMS, "current_stream set_stream"),
    ("distributed", _COLLECTIVES, """
        all_gather all_gather_into_tensor all_gather_object all_reduce all_to_all all_to_all_single barrier broadcast
        broadcast_object_list gather gather_object get_backend get_process_group_ranks get_global_rank
        init_device_mesh init_process_group irecv
        isend monitored_barrier new_group recv reduce reduce_scatter reduce_scatter_tensor scatter
        scatter_object_list send"""),
    ("masked", _MASKED_TENSOR, "MaskedTensor as_masked_tensor is_masked_tensor masked_tensor"),
)  # fmt: skip

# Values that are not functions: looking them up raises.
_VALUES: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("qint8", "qint32", "quint8", "per_tensor_affine", "per_channel_affine"), _QUANTIZED),
    "jagged": _NESTED,
    **dict.fromkeys(("complex32", "chalf"), _COMPLEX32),
}  # fmt: skip

_reasons = {(place, name): why for place, why, names in TABLE for name in names.split()}


class UnsupportedNameError(NotImplementedError, AttributeError):
    """A value of PyTorch's that does not exist here.  For `hasattr` and `getattr` with a default it is not there."""


class Unsupported(ABCMeta):
    """The class of such names, which are classes themselves: a call of one raises, with the reason and what to use.

    Whatever else is done with a name works: it may stand in an annotation (`X | None`, `X[int]`), in `isinstance`
    and in a pickle, be a base, and decorate what is being defined.
    """

    _why: tuple[str, str, tuple[str, str]]  # place, name and reason of the name, which a subclass has too

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs:
            caller = sys._getframe(1)
            if any(_is_being_defined(args[0], frame) for frame in (caller, caller.f_back) if frame is not None):
                return cls  # directly, or by a decorator of the package's own
        raise NotImplementedError(explained(*cls._why))

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        place, own, why = cls._why
        return refused(f"{place}.{own}".lstrip("."), name, why)

    def __getitem__(cls, item: Any) -> Any:
        return cls

    def __repr__(cls) -> str:
        place, name, _ = cls._why
        return f"<{'.'.join(filter(None, ('xgrad', place, name)))}: not supported>"


def _is_being_defined(what: Any, frame: FrameType) -> bool:
    """Return True for a function or class that `frame` defines and has not given its name yet: it is decorated."""
    if not isinstance(what, (FunctionType, type)) or frame.f_locals.get(what.__name__) is what:
        return False
    return any(getattr(code, "co_qualname", None) == what.__qualname__ for code in frame.f_code.co_consts)


@cache
def refused(place: str, name: str, why: tuple[str, str]) -> Any:
    """Return what stands for `name` of the namespace `place`; `why` is (the reason, what to use instead)."""
    bases = (Exception,) if name.endswith(("Error", "Exception")) or place.endswith((".exc", ".errors")) else ()
    known = {"_why": (place, name, why), "__doc__": explained(place, name, why)}
    return Unsupported(name, bases, {**known, "__module__": f"xgrad.{place}".rstrip(".")})


def _reduced(name: Unsupported) -> Any:
    return (refused, name._why) if name is refused(*name._why) else name.__qualname__  # a subclass: by its name


copyreg.pickle(Unsupported, _reduced)


def explained(place: str, name: str, why: tuple[str, str]) -> str:
    """Return the text of the error for a name: why it is not there, and what to use."""
    where = f"xgrad.{place}.{name}" if place else f"xgrad.{name}"
    return f"{where} is not supported: {why[0]}. {why[1]}"


def unsupported(place: str, name: str) -> Any:
    """Return what stands for a name of the namespace `place` ("", "sparse", ...); None for names not in the tables.

    Raises `UnsupportedNameError` for the name of a value.

    >>> import xgrad
    >>> xgrad.quantize_per_tensor(xgrad.ones(2), 0.1, 0, None)
    Traceback (most recent call last):
    NotImplementedError: xgrad.quantize_per_tensor is not supported: XLA has no quantized tensors. Keep integers ...
    """
    if not place and name in _VALUES:
        raise UnsupportedNameError(explained(place, name, _VALUES[name]))
    return refused(place, name, _reasons[place, name]) if (place, name) in _reasons else None


def reason(place: str, name: str) -> tuple[str, str]:
    """Return why a name of the tables is not there, and what to use."""
    return _reasons[place, name]


def attach(tensor: Any) -> None:
    """Add the unsupported methods to `Tensor`."""
    for place, name in _reasons:
        if place == "Tensor":
            setattr(tensor, name, unsupported(place, name))
