"""xgrad.nn, as torch.nn: layers as functions and as modules, and Module with its parameters and hooks.

The modules are loaded at their first use, so that `import xgrad` takes less time.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ..base.missing import MissingNameError
from . import functional as functional

if TYPE_CHECKING:
    from . import attention as attention
    from . import common_types as common_types
    from . import init as init
    from . import modules as modules
    from . import parallel as parallel
    from . import utils as utils
    from .containers import ModuleDict as ModuleDict
    from .containers import ModuleList as ModuleList
    from .containers import Sequential as Sequential
    from .linear_cross_entropy_options import LinearCrossEntropyOptions as LinearCrossEntropyOptions
    from .module import Module as Module
    from .modules.activation import CELU as CELU
    from .modules.activation import ELU as ELU
    from .modules.activation import GELU as GELU
    from .modules.activation import GLU as GLU
    from .modules.activation import SELU as SELU
    from .modules.activation import Hardshrink as Hardshrink
    from .modules.activation import Hardsigmoid as Hardsigmoid
    from .modules.activation import Hardswish as Hardswish
    from .modules.activation import Hardtanh as Hardtanh
    from .modules.activation import LeakyReLU as LeakyReLU
    from .modules.activation import LogSigmoid as LogSigmoid
    from .modules.activation import LogSoftmax as LogSoftmax
    from .modules.activation import Mish as Mish
    from .modules.activation import PReLU as PReLU
    from .modules.activation import ReLU as ReLU
    from .modules.activation import ReLU6 as ReLU6
    from .modules.activation import RReLU as RReLU
    from .modules.activation import Sigmoid as Sigmoid
    from .modules.activation import SiLU as SiLU
    from .modules.activation import Softmax as Softmax
    from .modules.activation import Softmax2d as Softmax2d
    from .modules.activation import Softmin as Softmin
    from .modules.activation import Softplus as Softplus
    from .modules.activation import Softshrink as Softshrink
    from .modules.activation import Softsign as Softsign
    from .modules.activation import Tanh as Tanh
    from .modules.activation import Tanhshrink as Tanhshrink
    from .modules.activation import Threshold as Threshold
    from .modules.adaptive import AdaptiveLogSoftmaxWithLoss as AdaptiveLogSoftmaxWithLoss
    from .modules.batchnorm import BatchNorm1d as BatchNorm1d
    from .modules.batchnorm import BatchNorm2d as BatchNorm2d
    from .modules.batchnorm import BatchNorm3d as BatchNorm3d
    from .modules.batchnorm import LazyBatchNorm1d as LazyBatchNorm1d
    from .modules.batchnorm import LazyBatchNorm2d as LazyBatchNorm2d
    from .modules.batchnorm import LazyBatchNorm3d as LazyBatchNorm3d
    from .modules.batchnorm import SyncBatchNorm as SyncBatchNorm
    from .modules.channelshuffle import ChannelShuffle as ChannelShuffle
    from .modules.conv import Conv1d as Conv1d
    from .modules.conv import Conv2d as Conv2d
    from .modules.conv import Conv3d as Conv3d
    from .modules.conv import ConvTranspose1d as ConvTranspose1d
    from .modules.conv import ConvTranspose2d as ConvTranspose2d
    from .modules.conv import ConvTranspose3d as ConvTranspose3d
    from .modules.conv import LazyConv1d as LazyConv1d
    from .modules.conv import LazyConv2d as LazyConv2d
    from .modules.conv import LazyConv3d as LazyConv3d
    from .modules.conv import LazyConvTranspose1d as LazyConvTranspose1d
    from .modules.conv import LazyConvTranspose2d as LazyConvTranspose2d
    from .modules.conv import LazyConvTranspose3d as LazyConvTranspose3d
    from .modules.distance import CosineSimilarity as CosineSimilarity
    from .modules.distance import PairwiseDistance as PairwiseDistance
    from .modules.dropout import AlphaDropout as AlphaDropout
    from .modules.dropout import Dropout as Dropout
    from .modules.dropout import Dropout1d as Dropout1d
    from .modules.dropout import Dropout2d as Dropout2d
    from .modules.dropout import Dropout3d as Dropout3d
    from .modules.dropout import FeatureAlphaDropout as FeatureAlphaDropout
    from .modules.flatten import Flatten as Flatten
    from .modules.flatten import Unflatten as Unflatten
    from .modules.fold import Fold as Fold
    from .modules.fold import Unfold as Unfold
    from .modules.instancenorm import InstanceNorm1d as InstanceNorm1d
    from .modules.instancenorm import InstanceNorm2d as InstanceNorm2d
    from .modules.instancenorm import InstanceNorm3d as InstanceNorm3d
    from .modules.instancenorm import LazyInstanceNorm1d as LazyInstanceNorm1d
    from .modules.instancenorm import LazyInstanceNorm2d as LazyInstanceNorm2d
    from .modules.instancenorm import LazyInstanceNorm3d as LazyInstanceNorm3d
    from .modules.linear import Bilinear as Bilinear
    from .modules.linear import Identity as Identity
    from .modules.linear import LazyLinear as LazyLinear
    from .modules.linear import Linear as Linear
    from .modules.loss import BCELoss as BCELoss
    from .modules.loss import BCEWithLogitsLoss as BCEWithLogitsLoss
    from .modules.loss import CosineEmbeddingLoss as CosineEmbeddingLoss
    from .modules.loss import CrossEntropyLoss as CrossEntropyLoss
    from .modules.loss import CTCLoss as CTCLoss
    from .modules.loss import GaussianNLLLoss as GaussianNLLLoss
    from .modules.loss import HingeEmbeddingLoss as HingeEmbeddingLoss
    from .modules.loss import HuberLoss as HuberLoss
    from .modules.loss import KLDivLoss as KLDivLoss
    from .modules.loss import L1Loss as L1Loss
    from .modules.loss import LinearCrossEntropyLoss as LinearCrossEntropyLoss
    from .modules.loss import MarginRankingLoss as MarginRankingLoss
    from .modules.loss import MSELoss as MSELoss
    from .modules.loss import MultiLabelMarginLoss as MultiLabelMarginLoss
    from .modules.loss import MultiLabelSoftMarginLoss as MultiLabelSoftMarginLoss
    from .modules.loss import MultiMarginLoss as MultiMarginLoss
    from .modules.loss import NLLLoss as NLLLoss
    from .modules.loss import NLLLoss2d as NLLLoss2d
    from .modules.loss import PoissonNLLLoss as PoissonNLLLoss
    from .modules.loss import SmoothL1Loss as SmoothL1Loss
    from .modules.loss import SoftMarginLoss as SoftMarginLoss
    from .modules.loss import TripletMarginLoss as TripletMarginLoss
    from .modules.loss import TripletMarginWithDistanceLoss as TripletMarginWithDistanceLoss
    from .modules.multihead_attention import MultiheadAttention as MultiheadAttention
    from .modules.normalization import CrossMapLRN2d as CrossMapLRN2d
    from .modules.normalization import GroupNorm as GroupNorm
    from .modules.normalization import LayerNorm as LayerNorm
    from .modules.normalization import LocalResponseNorm as LocalResponseNorm
    from .modules.normalization import RMSNorm as RMSNorm
    from .modules.padding import CircularPad1d as CircularPad1d
    from .modules.padding import CircularPad2d as CircularPad2d
    from .modules.padding import CircularPad3d as CircularPad3d
    from .modules.padding import ConstantPad1d as ConstantPad1d
    from .modules.padding import ConstantPad2d as ConstantPad2d
    from .modules.padding import ConstantPad3d as ConstantPad3d
    from .modules.padding import ReflectionPad1d as ReflectionPad1d
    from .modules.padding import ReflectionPad2d as ReflectionPad2d
    from .modules.padding import ReflectionPad3d as ReflectionPad3d
    from .modules.padding import ReplicationPad1d as ReplicationPad1d
    from .modules.padding import ReplicationPad2d as ReplicationPad2d
    from .modules.padding import ReplicationPad3d as ReplicationPad3d
    from .modules.padding import ZeroPad1d as ZeroPad1d
    from .modules.padding import ZeroPad2d as ZeroPad2d
    from .modules.padding import ZeroPad3d as ZeroPad3d
    from .modules.pixelshuffle import PixelShuffle as PixelShuffle
    from .modules.pixelshuffle import PixelUnshuffle as PixelUnshuffle
    from .modules.pooling import AdaptiveAvgPool1d as AdaptiveAvgPool1d
    from .modules.pooling import AdaptiveAvgPool2d as AdaptiveAvgPool2d
    from .modules.pooling import AdaptiveAvgPool3d as AdaptiveAvgPool3d
    from .modules.pooling import AdaptiveMaxPool1d as AdaptiveMaxPool1d
    from .modules.pooling import AdaptiveMaxPool2d as AdaptiveMaxPool2d
    from .modules.pooling import AdaptiveMaxPool3d as AdaptiveMaxPool3d
    from .modules.pooling import AvgPool1d as AvgPool1d
    from .modules.pooling import AvgPool2d as AvgPool2d
    from .modules.pooling import AvgPool3d as AvgPool3d
    from .modules.pooling import FractionalMaxPool2d as FractionalMaxPool2d
    from .modules.pooling import FractionalMaxPool3d as FractionalMaxPool3d
    from .modules.pooling import LPPool1d as LPPool1d
    from .modules.pooling import LPPool2d as LPPool2d
    from .modules.pooling import LPPool3d as LPPool3d
    from .modules.pooling import MaxPool1d as MaxPool1d
    from .modules.pooling import MaxPool2d as MaxPool2d
    from .modules.pooling import MaxPool3d as MaxPool3d
    from .modules.pooling import MaxUnpool1d as MaxUnpool1d
    from .modules.pooling import MaxUnpool2d as MaxUnpool2d
    from .modules.pooling import MaxUnpool3d as MaxUnpool3d
    from .modules.rnn import GRU as GRU
    from .modules.rnn import LSTM as LSTM
    from .modules.rnn import RNN as RNN
    from .modules.rnn import GRUCell as GRUCell
    from .modules.rnn import LSTMCell as LSTMCell
    from .modules.rnn import RNNBase as RNNBase
    from .modules.rnn import RNNCell as RNNCell
    from .modules.rnn import RNNCellBase as RNNCellBase
    from .modules.sparse import Embedding as Embedding
    from .modules.sparse import EmbeddingBag as EmbeddingBag
    from .modules.transformer import Transformer as Transformer
    from .modules.transformer import TransformerDecoder as TransformerDecoder
    from .modules.transformer import TransformerDecoderLayer as TransformerDecoderLayer
    from .modules.transformer import TransformerEncoder as TransformerEncoder
    from .modules.transformer import TransformerEncoderLayer as TransformerEncoderLayer
    from .modules.upsampling import Upsample as Upsample
    from .modules.upsampling import UpsamplingBilinear2d as UpsamplingBilinear2d
    from .modules.upsampling import UpsamplingNearest2d as UpsamplingNearest2d
    from .parallel import DataParallel as DataParallel
    from .parameter import Buffer as Buffer
    from .parameter import Parameter as Parameter
    from .parameter import UninitializedBuffer as UninitializedBuffer
    from .parameter import UninitializedParameter as UninitializedParameter
    from .parameter_containers import ParameterDict as ParameterDict
    from .parameter_containers import ParameterList as ParameterList

# The classes of each file; TYPE_CHECKING's imports above say the same to editors (tests/nn/test_names.py).
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
