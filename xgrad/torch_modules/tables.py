"""Tables for the modules named torch.X under `as_torch()`: the place of each name in xgrad, and names that raise.

A module torch.X shows xgrad.X if users may use that, so these tables have only what is elsewhere.  A name is looked up
in ANSWERS, then in the module's HOMES in their order.
"""

from ..base.unsupported import reason

_ATTRIBUTES = "torch_modules.torch_attributes"
# Module of torch's → the modules of xgrad's that have its names.  "a.*" stands for each module below a: the home of the
# same path comes first if it exists.
HOMES: dict[str, tuple[str, ...]] = {
    "": ("",),
    "_C": (_ATTRIBUTES, "autograd.torch_c_names", "ops.aten", "overrides", "", "autograd.forward_ad"),
    "_C._autograd": (_ATTRIBUTES, "autograd.torch_c_names", "autograd.graph", "autograd"),
    "_C._functions": ("autograd.torch_c_functions",),
    "_C._functorch": (_ATTRIBUTES, "func"),
    "_C._nn": ("nn.functional",),
    "_VF": ("",),
    "_compile": (_ATTRIBUTES,),
    "_dynamo": (_ATTRIBUTES, "compiler", "nn.module"),
    "_dynamo.eval_frame": (_ATTRIBUTES, "nn.module"),
    "_dynamo.utils": (_ATTRIBUTES,),
    "_functorch": (),
    "_functorch.*": (_ATTRIBUTES, "func"),
    "_higher_order_ops": ("control_flow",),
    "_jit_internal": ("jit", _ATTRIBUTES),
    "_lowrank": ("",),
    "_prims_common": (_ATTRIBUTES,),
    "_tensor": ("", _ATTRIBUTES),
    "_tensor_str": ("", _ATTRIBUTES),
    "_utils": (_ATTRIBUTES,),
    "_utils_internal": (_ATTRIBUTES,),
    "_vmap_internals": ("func",),
    "_weights_only_unpickler": ("serialization",),
    "amp.*": ("amp",),
    "autograd": ("autograd", "autograd.torch_c_names"),
    "autograd.*": ("autograd",),
    "autograd.gradcheck": ("autograd.gradcheck", "autograd"),
    "autograd.profiler": ("autograd.profiler", "autograd.profiler.events", _ATTRIBUTES),
    "autograd.profiler_legacy": ("autograd.profiler",),
    "autograd.profiler_util": ("autograd.profiler.events",),
    "backends.*": (),
    "compiler": ("compiler",),
    "cuda.*": ("cuda",),
    "cpu.*": ("cpu",),
    "distributions.*": ("distributions",),
    "func.*": ("func",),
    "functional": ("",),
    "hub": ("torch_modules.hub",),
    "jit": ("jit", _ATTRIBUTES),
    "jit.*": ("jit", _ATTRIBUTES),
    "_library.*": ("library", "library.infer_schema", "library.custom_op"),
    "library": ("library",),
    "linalg": ("linalg",),
    "masked.*": ("masked",),
    "nn.*": ("nn",),
    "nn.modules": ("nn.modules", "nn"),
    "nn.parallel": ("nn.parallel",),
    "nn.parallel.data_parallel": ("nn.parallel",),
    "nn.modules.*": (_ATTRIBUTES, "nn.modules", "nn"),
    "nn.utils.*": ("nn.utils", _ATTRIBUTES),
    "_ops": (),
    "_logging": (_ATTRIBUTES,),
    "optim.*": ("optim", _ATTRIBUTES),
    "overrides": ("overrides", _ATTRIBUTES),
    "profiler.*": ("profiler",),
    "return_types": ("return_types",),
    "signal.*": ("signal",),
    "sparse": ("sparse",),
    "storage": ("", _ATTRIBUTES),
    "testing.*": ("testing",),
    "torch_version": (_ATTRIBUTES,),
    "types": ("types", _ATTRIBUTES),
    "utils": ("utils", _ATTRIBUTES),
    "utils._foreach_utils": (_ATTRIBUTES,),
    "utils._pytree": ("torch_modules.pytree",),
    "utils._python_dispatch": (_ATTRIBUTES,),
    "utils._contextlib": (_ATTRIBUTES,),
    "utils._device": (_ATTRIBUTES, ""),
    "utils._cxx_pytree": ("torch_modules.pytree",),
    "utils.checkpoint": ("utils.checkpoint",),
    "utils.data.*": ("utils.data",),
    "utils.dlpack": ("utils.dlpack",),
    "utils.hooks": (_ATTRIBUTES,),
    "utils.model_zoo": ("torch_modules.hub",),
    "version": (_ATTRIBUTES,),
}

# Files of PyTorch's below modules that xgrad has: packages import from them, too.
_FILES = {
    "_functorch": "apis eager_transforms functional_call utils vmap",
    "amp": "autocast_mode grad_scaler",
    "autograd": "variable",
    "cuda": "memory random",
    "cuda.amp": "autocast_mode grad_scaler",
    "distributions": """
        bernoulli beta binomial categorical cauchy chi2 constraint_registry constraints continuous_bernoulli dirichlet
        distribution exp_family exponential fishersnedecor gamma generalized_pareto geometric gumbel half_cauchy
        half_normal independent inverse_gamma kl kumaraswamy laplace lkj_cholesky log_normal logistic_normal
        lowrank_multivariate_normal mixture_same_family multinomial multivariate_normal negative_binomial normal
        one_hot_categorical pareto poisson relaxed_bernoulli relaxed_categorical studentT transformed_distribution
        transforms uniform utils von_mises weibull wishart""",
    "func": "vmap",
    "jit": "_script annotations",
    "masked": "maskedtensor",
    "nn": "attention common_types grad",
    "nn.modules": """
        activation adaptive batchnorm channelshuffle container conv distance dropout flatten fold instancenorm lazy
        linear loss module normalization padding pixelshuffle pooling rnn sparse transformer upsampling utils""",
    "nn.utils": """
        clip_grad convert_parameters fusion init memory_format parametrizations parametrize prune rnn stateless""",
    "optim": """
        _functional _multi_tensor adadelta adagrad adam adamax adamw asgd lbfgs lr_scheduler nadam optimizer radam
        rmsprop rprop sgd sparse_adam swa_utils""",
    "profiler": "profiler",
    "testing": "_comparison",
    "utils.data": "_utils dataloader dataset distributed sampler",
    "utils.data._utils": "collate worker",
}
FILES = frozenset(f"{folder}.{name}" for folder, names in _FILES.items() for name in names.split())

_COLLECTIVES = reason("distributed", "all_reduce")
# Modules that can be imported, and whose names raise at use, as all below them: name → (reason, alternative).
REFUSED: dict[str, tuple[str, str]] = {
    name: reason("", name) for name in ("ao", "export", "fx", "hub", "multiprocessing", "onnx", "quantization")
}
_MACHINERY = ("it belongs to PyTorch's own compiler and its modes", "Use xgrad.compile, or jax.make_jaxpr.")
_COMPILERS = """
    _custom_op _custom_ops _decomp _dynamo._trace_wrapped_higher_order_op _dynamo.backends _dynamo.exc
    _dynamo.external_utils _dynamo.testing _dynamo.utils _export _functorch.aot_autograd _functorch.config _guards
    _higher_order_ops.associative_scan _higher_order_ops.flex_attention _inductor _meta_registrations _ops _prims _refs
    _subclasses utils._sympy
"""
_INTERPRETERS = ("func's transforms run on the tape, without interpreters", "Use the functions of torch.func.")
_KINETO = ("it is a part of Kineto, or reads a device", "Use autograd.profiler.profile, and jax.profiler.trace.")
REFUSED |= {
    "_C._autograd": _KINETO,
    "_C._functorch": _INTERPRETERS,
    "autograd.profiler": _KINETO,
    "autograd.profiler_util": _KINETO,
    **dict.fromkeys(_COMPILERS.split(), _MACHINERY),
    "futures": _COLLECTIVES,
    "package": reason("jit", "save"),
    "utils.data.datapipes": ("PyTorch has removed most of them", "Use Dataset and DataLoader."),
    "utils.mobile_optimizer": reason("jit", "save"),
    "utils.model_zoo": reason("", "hub"),
    "nested": reason("", "nested"),
    "nn.parallel": _COLLECTIVES,
    "nn.qat": reason("", "quantization"),
    "nn.quantized": reason("", "quantization"),
    "nn.intrinsic": reason("", "quantization"),
    "distributed": _COLLECTIVES,
    "utils.cpp_extension": reason("", "jiterator_unary"),
    "utils.benchmark": (
        "it times calls, and JAX runs ahead of them",
        "Use timeit on a call that reads its result, x.sum().item().",
    ),
    "nn.attention.flex_attention": (
        "it makes kernels of Python functions",
        "Use nn.functional.scaled_dot_product_attention, with what score_mod adds as attn_mask.",
    ),
}

# Names that another module of xgrad's has: (module of torch's, name) → "module:name", both of xgrad's.
ANSWERS: dict[tuple[str, str], str] = {
    ("", "__version__"): "torch_modules.torch_attributes:VERSION",
    ("", "__config__"): "torch_modules.torch_attributes:BUILD",
    ("version", "__version__"): "torch_modules.torch_attributes:VERSION",
    ("_dynamo", "config"): "torch_modules.torch_attributes:dynamo_config",
    ("overrides", "has_torch_function"): "overrides:has_xgrad_function",
    ("overrides", "handle_torch_function"): "overrides:handle_xgrad_function",
    ("_C", "_disabled_torch_function_impl"): "torch_modules.torch_attributes:disabled_override",
    ("_C", "DisableTorchFunctionSubclass"): "overrides:disable_overrides",
    ("_C", "DisableTorchFunction"): "overrides:disable_overrides",
    ("_C", "_nn"): "nn.functional:",
    ("_C._nn", "_parse_to"): "torch_modules.torch_attributes:_parse_to",
    ("_C", "_get_accelerator"): "torch_modules.torch_attributes:_get_accelerator",
    ("autograd.graph", "_get_grad_fn_or_grad_acc"): "autograd.multi_grad:node_of",
    ("autograd.profiler", "emit_itt"): "autograd.profiler:emit_nvtx",
    ("nn.functional", "has_torch_function"): "overrides:has_xgrad_function",
    ("nn.functional", "handle_torch_function"): "overrides:handle_xgrad_function",
    ("nn.functional", "has_torch_function_unary"): "torch_modules.torch_attributes:has_torch_function_variadic",
    ("nn.functional", "has_torch_function_variadic"): "torch_modules.torch_attributes:has_torch_function_variadic",
    ("overrides", "has_torch_function_unary"): "torch_modules.torch_attributes:has_torch_function_variadic",
    ("overrides", "has_torch_function_variadic"): "torch_modules.torch_attributes:has_torch_function_variadic",
    ("", "TensorType"): "torch_modules.torch_attributes:TensorType",
    ("", "LongStorage"): "tensor:Size",
    ("", "Storage"): ":TypedStorage",
    ("", "ops"): "torch_modules.aten:OPS",
    ("", "ScriptModule"): "jit:ScriptModule",
    ("", "ScriptFunction"): "jit:ScriptFunction",
    ("", "classes"): "torch_modules.aten:NOTHING",
    ("utils.data.dataloader", "_BaseDataLoaderIter"): "utils.data.dataloader:_LoaderIterator",
    ("utils.data.dataloader", "_MultiProcessingDataLoaderIter"): "utils.data.dataloader:_ThreadIterator",
    ("_tensor_str", "PRINT_OPTS"): "tensor_methods.printing:options",
    ("_tensor_str", "_add_suffixes"): "tensor_methods.printing:_with_suffixes",
    ("_tensor_str", "_str_intern"): "tensor_methods.printing:format_tensor",
    ("_tensor_str", "_tensor_str"): "tensor_methods.printing:contents",
    ("_tensor_str", "printoptions"): "tensor_methods.printing:printoptions",
    ("profiler", "kineto_available"): "autograd.torch_c_names:kineto_available",
    ("utils.hooks", "RemovableHandle"): "engine.hooks:RemovableHandle",
    ("", "_sample_dirichlet"): "distributions.gamma:sample_dirichlet",
    ("", "_assert"): "torch_modules.torch_attributes:assert_",
    ("", "multiprocessing"): "torch_modules.torch_attributes:",
    ("", "onnx"): "torch_modules.torch_attributes:",  # the module, which answers one question
    ("onnx", "is_in_onnx_export"): "torch_modules.torch_attributes:is_in_onnx_export",
    ("onnx", "register_custom_op_symbolic"): "torch_modules.torch_attributes:_log_api_usage_once",
    ("onnx", "unregister_custom_op_symbolic"): "torch_modules.torch_attributes:_log_api_usage_once",
    ("onnx.symbolic_helper", "parse_args"): "torch_modules.torch_attributes:identity",
    ("onnx.symbolic_helper", "quantized_args"): "torch_modules.torch_attributes:identity",
    ("fx", "wrap"): "jit:script",
    ("fx._compatibility", "compatibility"): "torch_modules.torch_attributes:identity",
    ("cuda", "OutOfMemoryError"): "errors:OutOfMemoryError",
    ("", "OutOfMemoryError"): "errors:OutOfMemoryError",
    ("_C", "_LinAlgError"): "linalg:LinAlgError",
}
_CHECKS = "_with _tensor_all_with _index _value _type _not_implemented _tensor_all _is_size"
ANSWERS |= {("", f"_check{kind}"): f"torch_modules.checks:_check{kind}" for kind in ("", *_CHECKS.split())}
_ASKED = "get_start_method get_all_start_methods get_context current_process parent_process active_children cpu_count"
ANSWERS |= {("multiprocessing", name): f"torch_modules.torch_attributes:{name}" for name in _ASKED.split()}
_TENSORS = "Float Double Half BFloat16 Long Int Short Char Byte Bool"
ANSWERS |= {("sparse", f"{kind}Tensor"): f":{kind}Tensor" for kind in _TENSORS.split()}
ANSWERS |= {
    ("", name): f"torch_modules.torch_attributes:{name}"
    for name in ("_assert_async", "_is_all_true", "_is_any_true", "_shape_as_tensor")
}
