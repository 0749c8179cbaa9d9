"""Tests of distributions compare with torch's, which check their arguments."""

import pytest
import torch.distributions


@pytest.fixture(autouse=True)
def _torchs_distributions_check():
    """A `torch.compile` in an earlier test of the process has switched off the checks of torch.distributions."""
    torch.distributions.Distribution.set_default_validate_args(True)
