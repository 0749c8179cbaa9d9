"""In a lazy block the first step is the program of all steps: the state's first arrays can be donated too."""

import pytest

import xgrad
from xgrad import nn, optim


@pytest.mark.eager("launches")
def test_all_steps_are_one_program():
    layer = nn.Linear(64, 64)  # 16 KiB: smaller arrays are not donated
    optimizer = optim.Adam(layer.parameters())
    x = xgrad.ones(1, 64)
    xgrad.lazy.reset()
    for _ in range(3):
        with xgrad.lazy():
            optimizer.zero_grad()
            layer(x).sum().backward()
            optimizer.step()
    assert xgrad.lazy.metrics().compiled == 1
