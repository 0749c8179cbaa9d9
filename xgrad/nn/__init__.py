"""xgrad.nn, as torch.nn: layers as functions and as modules, and Module with its parameters and hooks.

The modules are loaded at their first use, so that `import xgrad` takes less time.
"""

import importlib
from typing import Any

from ..base.missing import MissingNameError
from . import functional as functional

# The classes of each file; scripts/make_stubs.py tells editors of them.
_CLASSES = {
    "containers": "ModuleDict ModuleList Sequential",
    "linear_cross_entropy_options": "LinearCrossEntropyOptions",
    "module": "Module",
    "modules.activation": (
        "CELU ELU GELU GLU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid LogSoftmax Mish PReLU "
        "RReLU ReLU ReLU6 SELU SiLU Sigmoid Softmax Softmax2d Softmin Softplus Softshrink Softsign Tanh "
        "Tanhshrink Threshold"
    ),
    "modules.adaptive": "AdaptiveLogSoftmaxWithLoss",
    "modules.batchnorm": (
        "BatchNorm1d BatchNorm2d BatchNorm3d LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d SyncBatchNorm"
    ),
    "modules.channelshuffle": "ChannelShuffle",
    "modules.conv": (
        "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d LazyConv1d LazyConv2d LazyConv3d "
        "LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d"
    ),
    "modules.distance": "CosineSimilarity PairwiseDistance",
    "modules.dropout": "AlphaDropout Dropout Dropout1d Dropout2d Dropout3d FeatureAlphaDropout",
    "modules.flatten": "Flatten Unflatten",
    "modules.fold": "Fold Unfold",
    "modules.instancenorm": (
        "InstanceNorm1d InstanceNorm2d InstanceNorm3d LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d"
    ),
    "modules.linear": "Bilinear Identity LazyLinear Linear",
    "modules.loss": (
        "BCELoss BCEWithLogitsLoss CTCLoss CosineEmbeddingLoss CrossEntropyLoss GaussianNLLLoss "
        "HingeEmbeddingLoss HuberLoss KLDivLoss L1Loss LinearCrossEntropyLoss MSELoss MarginRankingLoss "
        "MultiLabelMarginLoss MultiLabelSoftMarginLoss MultiMarginLoss NLLLoss NLLLoss2d PoissonNLLLoss "
        "SmoothL1Loss SoftMarginLoss TripletMarginLoss TripletMarginWithDistanceLoss"
    ),
    "modules.multihead_attention": "MultiheadAttention",
    "modules.normalization": "CrossMapLRN2d GroupNorm LayerNorm LocalResponseNorm RMSNorm",
    "modules.padding": (
        "CircularPad1d CircularPad2d CircularPad3d ConstantPad1d ConstantPad2d ConstantPad3d ReflectionPad1d "
        "ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d ReplicationPad3d ZeroPad1d ZeroPad2d "
        "ZeroPad3d"
    ),
    "modules.pixelshuffle": "PixelShuffle PixelUnshuffle",
    "modules.pooling": (
        "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d "
        "AdaptiveMaxPool3d AvgPool1d AvgPool2d AvgPool3d FractionalMaxPool2d FractionalMaxPool3d LPPool1d "
        "LPPool2d LPPool3d MaxPool1d MaxPool2d MaxPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d"
    ),
    "modules.rnn": "GRU GRUCell LSTM LSTMCell RNN RNNBase RNNCell RNNCellBase",
    "modules.sparse": "Embedding EmbeddingBag",
    "modules.transformer": (
        "Transformer TransformerDecoder TransformerDecoderLayer TransformerEncoder TransformerEncoderLayer"
    ),
    "modules.upsampling": "Upsample UpsamplingBilinear2d UpsamplingNearest2d",
    "parallel": "DataParallel",
    "parameter": "Buffer Parameter UninitializedBuffer UninitializedParameter",
    "parameter_containers": "ParameterDict ParameterList",
}
HOMES = {name: module for module, names in _CLASSES.items() for name in names.split()}
_MODULES = ("attention", "common_types", "init", "modules", "parallel", "utils")


def _found(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name not in HOMES:
        raise MissingNameError(__name__, name)
    found = globals()[name] = getattr(importlib.import_module(f".{HOMES[name]}", __name__), name)
    return found


globals()["__getattr__"] = _found  # type checkers do not see it: a misspelt name is an error


def __dir__() -> list[str]:
    """Return the names that users may use, which `__all__` has too."""
    return sorted({*HOMES, *_MODULES, "functional"})


globals()["__all__"] = __dir__()
