"""Programs give PyTorch's losses: each in one mode here, by turns; `python -m tests.programs` runs all in all modes."""

import pytest

from .harness import MODES, PROGRAMS, compare, enter_all

enter_all()
QUICK = ("cnn", "gpt", "wgan_gp", "maml")  # a few of different kinds


def cases():
    for i, (name, entry) in enumerate(PROGRAMS.items()):
        mode = MODES[i % len(MODES)]
        mode = "lazy" if mode == "compiled" and not entry.compiled else mode
        yield pytest.param(name, mode, marks=() if name in QUICK else pytest.mark.exhaustive)


@pytest.mark.parametrize(("name", "mode"), [*cases()])
@pytest.mark.filterwarnings(
    "ignore:Initializing zero-element tensors:UserWarning"
)  # both libraries', of these programs
@pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning")
@pytest.mark.unverified("the programs are compared with PyTorch")
def test_losses_are_pytorchs(name, mode):
    compare(name, mode)
