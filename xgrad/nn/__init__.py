"""What training code needs of torch.nn: the functional layers, and a Module to hold parameters and hooks.

Layers beyond `Linear` are Flax's, Equinox's or your own, optimizers are optax's.
"""

from . import functional as functional
from . import utils as utils
from .containers import ModuleDict as ModuleDict
from .containers import ModuleList as ModuleList
from .containers import Sequential as Sequential
from .linear import Linear as Linear
from .module import Module as Module
from .parameter import Buffer as Buffer
from .parameter import Parameter as Parameter
from .parameter_containers import ParameterDict as ParameterDict
from .parameter_containers import ParameterList as ParameterList
