"""FlopCounterMode: counts as PyTorch's, by modules, in forward and backward, however the operators run."""

import threading

import pytest
import torch
import torch.utils.flop_counter

import xgrad

PROGRAMS = {
    "mlp": lambda t: (t.nn.Sequential(t.nn.Linear(4, 8), t.nn.ReLU(), t.nn.Linear(8, 2)), (3, 4)),
    "strided": lambda t: (t.nn.Conv2d(4, 6, 3, stride=2, padding=1), (2, 4, 9, 9)),
    "transposed": lambda t: (t.nn.ConvTranspose2d(6, 4, 3, stride=2), (2, 6, 5, 5)),
    "small": lambda t: (t.nn.Conv2d(3, 4, 3, padding=1), (1, 3, 1, 1)),
    "wide": lambda t: (t.nn.Conv2d(3, 4, 7, padding=3, stride=2), (1, 3, 4, 4)),
    "transposed, of stride 1": lambda t: (t.nn.ConvTranspose2d(3, 4, 3, padding=2), (1, 3, 4, 4)),
    "dilated": lambda t: (t.nn.Conv1d(2, 3, 3, dilation=2, padding="same"), (2, 2, 9)),
    "attention": lambda t: (attention(t), (2, 5, 8)),
    "cell": lambda t: (t.nn.GRUCell(4, 5), (2, 4)),
}


def attention(t):
    class Attention(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.out = t.nn.Linear(8, 8), t.nn.Linear(8, 8)

        def forward(self, x):
            weights = (self.q(x) @ x.transpose(1, 2)).softmax(-1)
            return self.out(t.einsum("bij,bjk->bik", weights, x))

    return Attention()


def counted(t, name, run):
    net, shape = PROGRAMS[name](t)
    x = t.ones(*shape)
    with t.utils.flop_counter.FlopCounterMode(display=False) as counter:
        run(net, x)
    assert counter.get_total_flops() == sum(counter.get_flop_counts()["Global"].values())
    return {module: sum(counts.values()) for module, counts in counter.get_flop_counts().items()}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("input_too", [False, True])
def test_it_counts_as_pytorch(name, input_too):
    def run(net, x):
        net(x)
        net(x.requires_grad_(input_too)).sum().backward()

    ours = counted(xgrad, name, run)
    assert ours == counted(torch, name, run)
    assert len(ours) > 1


def test_without_gradients_only_forward_counts():
    def run(net, x):
        with xgrad.no_grad():
            net(x)

    assert counted(xgrad, "mlp", run) == {"Global": 288, "Sequential": 288, "Sequential.0": 192, "Sequential.2": 96}


def test_operators_whose_shapes_depend_on_values_count_nothing():
    with xgrad.utils.flop_counter.FlopCounterMode(display=False) as counter:
        x = xgrad.tensor([1.0, 0.0, 1.0])
        assert len(x.unique()) == len(x.nonzero()) == 2
    assert counter.get_total_flops() == 0


def test_a_convolution_without_results_counts_nothing():
    with xgrad.utils.flop_counter.FlopCounterMode(display=False) as counter:
        xgrad.nn.functional.conv_transpose2d(xgrad.ones(2, 3, 4, 4), xgrad.ones(3, 0, 1, 1))
    assert counter.get_total_flops() == 0


def test_lazy_operators_count():
    def run(net, x):
        with xgrad.lazy():
            net(x).sum().backward()

    assert counted(xgrad, "mlp", run)["Global"] == 672


def test_each_run_of_backward_counts_and_a_checkpoint_counts_again():
    def twice(net, x):
        y = net(x).sum()
        y.backward(retain_graph=True)
        y.backward()

    def again(net, x):
        xgrad.utils.checkpoint.checkpoint(net, x.requires_grad_(), use_reentrant=False).sum().backward()

    assert counted(xgrad, "mlp", twice)["Global"] == 288 + 2 * 384
    assert counted(xgrad, "mlp", again)["Global"] == 288 + 288 + 576 - 96  # the last product is not computed again


def test_a_reentrant_checkpoint_counts_for_the_modules_around_it():
    class Around(xgrad.nn.Module):
        def __init__(self):
            super().__init__()
            self.sub = xgrad.nn.Linear(4, 4)

        def forward(self, x):
            return xgrad.utils.checkpoint.checkpoint(self.sub, x, use_reentrant=True)

    with xgrad.utils.flop_counter.FlopCounterMode(display=False) as counter:
        Around()(xgrad.ones(2, 4, requires_grad=True)).sum().backward()
    counts = {module: sum(found.values()) for module, found in counter.get_flop_counts().items()}
    assert counts == {"Global": 256, "Around": 256, "Around.sub": 256}


@pytest.mark.parametrize("create_graph", [False, True])
def test_only_gradients_that_are_asked_for_count(create_graph):
    def run(net, x):
        xgrad.autograd.grad(net(x.requires_grad_()).sum(), x, create_graph=create_graph)

    assert counted(xgrad, "mlp", run)["Sequential.0"] == 2 * 192  # forward, and the gradient of x


def test_an_error_in_a_module_leaves_no_module_entered():
    class Refuses(xgrad.nn.Module):
        def forward(self, x):
            raise ValueError

    linear = xgrad.nn.Linear(4, 2)
    with xgrad.utils.flop_counter.FlopCounterMode(display=False) as counter:
        with pytest.raises(ValueError):  # noqa: PT011 - the module's own
            xgrad.nn.Sequential(linear, Refuses())(xgrad.ones(3, 4))
        xgrad.ones(3, 4) @ xgrad.ones(4, 2)
    counts = {module: sum(found.values()) for module, found in counter.get_flop_counts().items()}
    assert counts == {"Global": 96, "Sequential": 48, "Sequential.0": 48}


def test_modules_of_another_thread_do_not_count():
    linear, other = xgrad.nn.Linear(4, 2), xgrad.nn.Linear(4, 2)
    with xgrad.utils.flop_counter.FlopCounterMode(display=False) as counter:
        thread = threading.Thread(target=other, args=(xgrad.ones(3, 4),))
        thread.start()
        thread.join()
        linear(xgrad.ones(3, 4))
    assert counter.get_total_flops() == 48


def test_it_shows_a_table_and_begins_anew(capsys):
    net = xgrad.nn.Sequential(xgrad.nn.Linear(400, 500))
    counter = xgrad.utils.flop_counter.FlopCounterMode(depth=1)
    assert counter.get_total_flops() == 0
    assert counter.get_flop_counts() == {}
    for _ in range(2):
        with counter:
            net(xgrad.ones(100, 400))
    assert counter.get_total_flops() == 40_000_000
    printed = capsys.readouterr().out
    assert printed.count("Global") == 2
    assert "40.000M  100.00%" in printed
    assert "Sequential.0" not in printed
    assert "Sequential.0" in counter.get_table(2)
    with counter, pytest.raises(RuntimeError, match="not reentrant"):
        counter.__enter__()
    net(xgrad.ones(100, 400))
    assert counter.get_total_flops() == 0  # its hooks are gone
    with pytest.raises(NotImplementedError, match="custom_mapping"):
        xgrad.utils.flop_counter.FlopCounterMode(custom_mapping={xgrad.mm: int})
