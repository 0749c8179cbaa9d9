"""SparseAdam in whole training steps, eager, lazy and compiled: torch's numbers, whatever rows a gradient has."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch

import xgrad

pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks", "ignore:Detected call of")

HOW = {"eager": lambda step: step, "lazy": xgrad.lazy(), "compile": xgrad.compile}
ROWS, SIZE, COUNT = 7, 3, 5


def embedding(lib, rows, table, **options):
    return lib.nn.functional.embedding(rows, table, sparse=True, **options)


class Run:
    """Three tables in two groups, one of which gets no gradient; indices with doubles, in one case a padding row."""

    def __init__(self, lib, lr=0.1, zero="before", scaler=False, backwards=1, **options):
        rng = np.random.RandomState(0)
        self.lib, self.zero, self.backwards = lib, zero, backwards
        self.tables = [lib.tensor(rng.randn(ROWS, SIZE).tolist(), requires_grad=True) for _ in range(3)]
        one, two, unused = self.tables
        rate = lib.tensor(lr) if options.pop("tensor", False) else lr
        groups = [{"params": [one, unused]}, {"params": [two], "lr": lr / 2, "betas": (0.5, 0.7)}]
        self.optimizer = lib.optim.SparseAdam(groups, lr=rate, **options)
        self.scaler = lib.amp.GradScaler("cpu", init_scale=16.0, growth_interval=3) if scaler else None

    def loss(self, rows, target):
        one, two, _ = self.tables
        padding = 2 if self.zero == "after" else None
        first, second = embedding(self.lib, rows, one), embedding(self.lib, rows.flip(0), two, padding_idx=padding)
        return ((first * second - target) ** 2).sum()

    def step(self, rows, target):
        if self.zero == "before":
            self.optimizer.zero_grad()
        for _ in range(self.backwards):
            loss = self.loss(rows, target)
            (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        if self.zero == "after":
            for p in self.tables:
                p.grad = None
        return loss.detach()

    def train(self, how="eager", steps=50, factors=None):
        self.run = HOW[how](self.step) if self.lib is xgrad else self.step
        rng, lib = np.random.RandomState(1), self.lib
        schedule = lib.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.97)
        self.losses = []
        for i in range(steps):
            target = rng.randn(COUNT, SIZE) * (1.0 if factors is None else factors[i % len(factors)])
            rows = lib.tensor(rng.randint(0, ROWS, COUNT).tolist())
            self.losses.append(float(self.run(rows, lib.tensor(target.tolist()))))
            schedule.step()
        return self

    def found(self):
        """Tables, gradients and the state, as arrays."""
        states = [self.optimizer.state.get(p, {}) for p in self.tables]
        arrays = [t for p, s in zip(self.tables, states) for t in (p, p.grad, *map(s.get, ("step", *AVERAGES)))]
        return [None if t is None else array(t) for t in arrays]


def array(value):
    if isinstance(value, int):  # torch's count of steps
        return np.float32(value)
    return np.array((value.to_dense() if value.is_sparse else value).detach().numpy())


AVERAGES = ("exp_avg", "exp_avg_sq")


@pytest.fixture(scope="module", autouse=True)
def imported():
    """Import what a step imports: frames of pytest's import hook ask a `state`, and then a step is traced twice."""
    xgrad.compile(Run(xgrad, zero="after").step, verify=False)(xgrad.tensor([0, 1]), xgrad.ones(2, SIZE))


def agree(how, steps=50, factors=None, **options):
    ours, theirs = (Run(lib, **options).train(how, steps, factors) for lib in (xgrad, torch))
    np.testing.assert_allclose(ours.losses, theirs.losses, rtol=1e-5)
    for a, b in zip(ours.found(), theirs.found(), strict=True):
        assert (a is None) is (b is None)
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    if how == "compile" and ours.run.metrics().traces != 1:  # a run that imports is traced twice, as `imported` says
        again = Run(xgrad, **options).train(how, steps, factors)
        assert again.run.metrics().traces == 1, again.run.metrics().reasons
        np.testing.assert_array_equal(again.losses, ours.losses)
    return ours, theirs


@pytest.mark.one_in(2)
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(
    "options", [{}, {"zero": "after"}, {"maximize": True, "lr": 0.01}, {"tensor": True}, {"backwards": 2}], ids=str
)
def test_fifty_steps_with_a_schedule_are_those_of_torch(how, options):
    agree(how, **options)


@pytest.mark.parametrize("how", HOW)
def test_a_grad_scaler_skips_steps_whose_gradients_are_not_finite(how):
    ours, theirs = agree(how, 14, (1.0, 1.0, math.inf, 1.0, math.nan, 1.0, 1.0), scaler=True)
    assert ours.scaler.state_dict() == theirs.scaler.state_dict()
    assert ours.optimizer.state[ours.tables[0]]["step"].item() == 10


def test_a_compiled_step_takes_the_memory_of_tables_and_averages_and_costs_its_rows():
    table = xgrad.zeros(4096, 8, requires_grad=True)
    optimizer = xgrad.optim.SparseAdam([table], lr=0.1)

    @xgrad.compile
    def step(rows):
        optimizer.zero_grad()
        (embedding(xgrad, rows, table) - 1).square().sum().backward()
        optimizer.step()

    rows = xgrad.tensor([5, 4000, 5])
    step(rows)
    memory, size = step.memory_analysis(rows), 4096 * 8 * 4
    assert memory.alias_size_in_bytes >= 3 * size
    assert memory.temp_size_in_bytes < size / 4


@pytest.mark.eager("launches")
def test_a_lazy_step_reads_nothing():
    table, rows = xgrad.ones(ROWS, SIZE, requires_grad=True), xgrad.tensor([0, 1, 0])
    optimizer, scaler = xgrad.optim.SparseAdam([table]), xgrad.amp.GradScaler("cpu", init_scale=16.0)

    def step():
        optimizer.zero_grad()
        scaler.scale(embedding(xgrad, rows, table).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    step()  # from the second on the state is there
    xgrad.lazy.reset()
    with xgrad.lazy():
        for _ in range(3):
            step()
        assert xgrad.lazy.metrics().launches == 0


def test_verify_compares_sparse_gradients():
    ours = Run(xgrad)
    run = xgrad.compile(ours.step, verify=True)
    for rows in ([0, 1, 0], [2, 2, 3]):
        run(xgrad.tensor(rows), xgrad.ones(3, SIZE))
    assert run.metrics().traces == 1


def test_a_gradient_of_an_earlier_call_is_refused_and_one_that_a_call_leaves_is_eagers():
    ours, theirs = Run(xgrad, zero="never"), Run(xgrad, zero="never")
    rows, target = xgrad.tensor([0, 1, 0, 2]), xgrad.ones(4, SIZE)
    run = xgrad.compile(ours.step)
    run(rows, target)
    theirs.step(rows, target)
    for p, other in zip(ours.tables[:2], theirs.tables):
        assert p.grad.layout == "sparse_coo"
        assert not p.grad.is_coalesced()
        assert p.grad.grad_fn is None
        np.testing.assert_allclose(p.grad.to_dense().numpy(), other.grad.to_dense().numpy(), rtol=1e-6)
    with pytest.raises(NotImplementedError, match=r"a \.grad from an earlier call, have the function set it to None"):
        run(rows, target)
    ours.optimizer.zero_grad()
    run(rows, target)
    assert run.metrics().traces == 1


def test_a_gradient_without_rows_counts_as_a_step():
    for how in HOW:
        states = []
        for lib in (xgrad, torch):
            run = Run(lib)
            step = HOW[how](run.step) if lib is xgrad else run.step
            step(lib.tensor([0, 1]), lib.ones(2, SIZE))
            step(lib.zeros(0, dtype=lib.int64), lib.ones(0, SIZE))
            states.append([run.tables[0].detach().numpy(), float(run.optimizer.state[run.tables[0]]["step"])])
        np.testing.assert_allclose(states[0][0], states[1][0], rtol=1e-6)
        assert states[0][1] == states[1][1] == 2


PROGRAM = """
import xgrad
table = xgrad.ones(4, 2, requires_grad=True)
optimizer = xgrad.optim.SparseAdam([table], lr=0.1)
schedule = xgrad.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

@xgrad.compile
def step(rows):
    optimizer.zero_grad()
    xgrad.nn.functional.embedding(rows, table, sparse=True).square().sum().backward()
    optimizer.step()

for _ in range(3):
    step(xgrad.tensor([0, 1, 0]))
    schedule.step()
print(step.metrics().traces, step.metrics().reasons)
"""


@pytest.mark.exhaustive
@pytest.mark.unverified("it counts traces")
def test_the_first_step_of_a_process_is_the_only_trace():
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert run.stdout == "1 ()\n"
