"""The operator table: importing this package declares every operator."""

import importlib
from typing import Any

# The call path first: declarations bind it.
from ..dispatch import call as call
from ..dispatch import call_pair as call_pair

# isort: split
# The declarations, a family of operators each.
from . import activation as activation
from . import advanced as advanced
from . import arithmetic as arithmetic
from . import bessel as bessel
from . import binary as binary
from . import broadcasting as broadcasting
from . import calculus as calculus
from . import casts as casts
from . import classification as classification
from . import comparison as comparison
from . import complex_views as complex_views
from . import compressed_layouts as compressed_layouts
from . import constructors as constructors
from . import convolution as convolution
from . import copying as copying
from . import ctc as ctc
from . import data as data
from . import distances as distances
from . import distributions as distributions
from . import dropout as dropout
from . import embedding as embedding
from . import factories as factories
from . import fft as fft
from . import fractional_pooling as fractional_pooling
from . import getitem as getitem
from . import grid as grid
from . import histograms as histograms
from . import indexing as indexing
from . import layers as layers
from . import layouts as layouts
from . import linalg as linalg
from . import linear_cross_entropy as linear_cross_entropy
from . import lobpcg as lobpcg
from . import loss as loss
from . import lowrank as lowrank
from . import masks as masks
from . import multi_head_attention as multi_head_attention
from . import normalization as normalization
from . import padding as padding
from . import pointwise as pointwise
from . import polynomials as polynomials
from . import pooling as pooling
from . import powers as powers
from . import pytrees as pytrees
from . import questions as questions
from . import recurrent as recurrent
from . import reduction as reduction
from . import resampling as resampling
from . import resizing as resizing
from . import sampling as sampling
from . import scan as scan
from . import scatter as scatter
from . import segments as segments
from . import shape as shape
from . import sorting as sorting
from . import special as special
from . import splitting as splitting
from . import statistics as statistics
from . import stft as stft
from . import storages as storages
from . import view_copies as view_copies
from . import views as views
from . import windows as windows


def __getattr__(name: str) -> Any:
    if name == "aten":  # few programs ask for it
        return importlib.import_module(".aten", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
