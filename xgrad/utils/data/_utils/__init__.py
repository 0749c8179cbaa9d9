"""Holds the parts of DataLoader, under PyTorch's names: collation, fetching, workers (torch/utils/data/_utils)."""

from . import collate as collate
from . import fetch as fetch
from . import worker as worker
