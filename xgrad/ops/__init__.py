"""The operator table: importing this package declares every operator."""

# The call path first: declarations bind it.
from . import call as call
from . import pair as pair

# isort: split
# The declarations, family by family; some combine operators of families above them.
from . import copying as copying
from . import views as views
from . import arithmetic as arithmetic
from . import powers as powers
from . import binary as binary
from . import pointwise as pointwise
from . import special as special
from . import comparison as comparison
from . import casts as casts
from . import reduction as reduction
from . import scan as scan
from . import sorting as sorting
from . import linalg as linalg
from . import activation as activation
from . import convolution as convolution
from . import pooling as pooling
from . import normalization as normalization
from . import padding as padding
from . import resampling as resampling
from . import distances as distances
from . import loss as loss
from . import classification as classification
from . import ctc as ctc
from . import layers as layers
from . import grid as grid
from . import embedding as embedding
from . import dropout as dropout
from . import data as data
from . import factories as factories
from . import sampling as sampling
from . import shape as shape
from . import copies as copies
from . import scatter as scatter
from . import indexing as indexing
from . import masks as masks
from . import advanced as advanced
from . import getitem as getitem
