"""`xgrad.compile(module)` is a module, as torch.compile's OptimizedModule."""

import copy
import pickle

import numpy as np
import pytest
import torch

import xgrad
from xgrad.nn.module import OptimizedModule


def net(T):
    nn = T.nn
    made = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    with T.no_grad():
        for n, p in enumerate(made.parameters()):
            p.copy_(T.linspace(-1, 1 + n, p.numel()).reshape(p.shape))
    return made


def compiled(T):
    return T.compile(net(T), backend="eager") if T is torch else T.compile(net(T))


@pytest.mark.parametrize(
    "look",
    [
        lambda T, c: [name for name, _ in c.named_parameters()],
        lambda T, c: [name for name, _ in c.named_modules()],
        lambda T, c: [name for name, _ in c.named_children()],
        lambda T, c: list(c.state_dict()),
        lambda T, c: list(copy.deepcopy(c).state_dict()),
        lambda T, c: repr(c),
        lambda T, c: isinstance(c, T.nn.Module),
        lambda T, c: isinstance(c, T.nn.Sequential),
        lambda T, c: type(c).__name__,
        lambda T, c: [n for n, _ in T.nn.Sequential(c, T.nn.Linear(1, 2)).named_parameters()],
        lambda T, c: (c.eval() is c, c._orig_mod.training, c.train()._orig_mod.training),
        lambda T, c: (c._orig_mod.eval(), c.training)[1],
        lambda T, c: "append" in dir(c),
        lambda T, c: str(c.load_state_dict(c.state_dict())),
        lambda T, c: c.get_submodule("_orig_mod.0").weight.shape == (4, 3),
    ],
)
def test_looks_like_pytorchs(look):
    assert look(xgrad, compiled(xgrad)) == look(torch, compiled(torch))


def test_attributes_are_the_originals():
    for T in (xgrad, torch):
        c = compiled(T)
        c.scale = 5
        c.extra = T.nn.Linear(1, 1)
        assert c._orig_mod.scale == 5
        assert "extra" in dict(c._orig_mod.named_children())
        del c.extra
        assert "extra" not in dict(c._orig_mod.named_children())
        with pytest.raises(AttributeError, match="'Sequential' object has no attribute 'nothing'"):
            c.nothing
        with pytest.raises(RuntimeError, match=r"Missing key\(s\) in state_dict: \"_orig_mod.0.weight\""):
            c.load_state_dict(net(T).state_dict())


def test_trains_as_part_of_another_module():
    """Its parameters are registered: the outer optimizer moves them."""

    class Outer(xgrad.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = xgrad.compile(net(xgrad))
            self.head = xgrad.nn.Linear(1, 1, bias=False)

        def forward(self, x):
            return self.head(self.body(x))

    outer, x = Outer(), xgrad.ones(2, 3)
    optimizer = xgrad.optim.SGD(outer.parameters(), lr=0.1)
    assert len(optimizer.param_groups[0]["params"]) == 5
    before = outer.body._orig_mod[0].weight.detach().clone()
    for _ in range(3):
        optimizer.zero_grad()
        outer(x).sum().backward()
        optimizer.step()
    assert not xgrad.equal(before, outer.body._orig_mod[0].weight)
    assert outer.body.metrics()[:2] == (3, 1)
    step = xgrad.compile(outer)  # compiled in compiled
    np.testing.assert_allclose(step(x).detach().numpy(), outer(x).detach().numpy(), rtol=1e-6)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))])
def test_a_copy_has_programs_of_its_own(copied):
    c, x = compiled(xgrad), xgrad.ones(2, 3)
    first = c(x)
    other = copied(c)
    assert other.metrics().traces == 0
    with xgrad.no_grad():
        for p in other.parameters():
            p.zero_()
    assert other(x).tolist() == [[0.0], [0.0]]
    assert c(x).tolist() == first.tolist()
    assert type(other) is OptimizedModule


def test_hooks_of_both():
    """Those of the original are part of the program, those of the compiled module run around it."""
    c, x = compiled(xgrad), xgrad.ones(2, 3)
    plain = c(x).detach()
    c._orig_mod.register_forward_hook(lambda module, args, out: out * 2)
    ran = []
    c.register_forward_hook(lambda module, args, out: ran.append(module) or out + 1)
    np.testing.assert_allclose(c(x).detach().numpy(), 2 * plain.numpy() + 1, rtol=1e-6)
    assert ran == [c]
    np.testing.assert_allclose(c._orig_mod(x).detach().numpy(), 2 * plain.numpy(), rtol=1e-6)


def test_looking_in():
    c, x = compiled(xgrad), xgrad.ones(2, 3)
    c(x)
    assert "HloModule" in c.as_text(x)
    assert c.cost_analysis(x)["flops"] > 0
    assert c.memory_analysis(x).output_size_in_bytes > 0
    assert "tanh" in c.lower(x).as_text()
    assert xgrad.viz.program(c)
    c.reset()
    assert c.metrics().calls == 0
    assert xgrad.compile(c._orig_mod, disable=True) is c._orig_mod
