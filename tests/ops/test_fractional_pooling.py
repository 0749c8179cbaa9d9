"""fractional_max_pool2d and 3d of given random numbers against PyTorch; what they refuse."""

import numpy as np
import pytest

import xgrad

from .derivatives import agree, numbers


@pytest.mark.one_in(2)
@pytest.mark.parametrize("n", [2, 3])
def test_fractional_max_pool_of_given_distances(n):
    x, random = numbers(2, 2, *(7, 6, 5)[:n]), np.random.RandomState(1).random_sample((2, 2, n))

    def pool(lib, x, random):
        F = lib.nn.functional
        function = getattr(F, f"fractional_max_pool{n}d")
        sizes = {"output_size": (3, 2, 3)[:n], "return_indices": True}
        return function(x, 2, _random_samples=random.detach(), **sizes)

    agree(pool, x, random, order=1, forward=False)
    F = xgrad.nn.functional
    drawn = getattr(F, f"fractional_max_pool{n}d")(xgrad.tensor(x[0]), 2, output_ratio=0.5)
    assert drawn.shape == (2, *(s // 2 for s in x.shape[2:]))
    with pytest.raises(ValueError, match="requires specifying either an output_size or an output_ratio"):
        getattr(F, f"fractional_max_pool{n}d")(xgrad.tensor(x), 2)
    with pytest.raises(RuntimeError, match="too large relative to input"):
        getattr(F, f"fractional_max_pool{n}d")(xgrad.tensor(x), 5, output_size=6)
