"""RNN, LSTM, GRU and their cells against torch's, with the same weights."""

import copy
import importlib
import pickle

import jax
import numpy as np
import pytest

import xgrad

from ..oracle import as_torch, data, same_error

MODES = ("RNN", "LSTM", "GRU")


def filled(T, m):
    """Give the parameters the same numbers in both libraries."""
    m = m.double()
    with T.no_grad():
        for i, p in enumerate(m.parameters()):
            p.copy_(data(T, tuple(p.shape), i))
    return m


def layer(T, mode, *sizes, **options):
    return filled(T, getattr(T.nn, mode)(*(sizes or (2, 3)), **options))


def packed(T, x, lengths=(2, 3), **options):
    pack = importlib.import_module(f"{T.__name__}.nn.utils.rnn").pack_padded_sequence
    return pack(x, T.tensor(lengths), enforce_sorted=False, **options)


def flat(out):
    """The tensors of a result."""
    return [t for x in out for t in flat(x)] if isinstance(out, tuple) else [] if out is None else [out]


def run(T, m, x, *states):
    """Results, and the gradients of all that can have one."""
    out = flat(m(x, *states))
    total = sum((t * data(T, tuple(t.shape), 30 + i)).sum() for i, t in enumerate(out) if t.dtype == T.float64)
    total.backward()
    leaves = [t for t in flat((x, *states)) if t.is_leaf and t.requires_grad]
    return out, [(n, p.grad) for n, p in m.named_parameters()], [t.grad for t in leaves]


def states(T, mode, count, batch=2, hidden=3, out=None):
    h = data(T, (count, batch, out or hidden), 40, True)
    return (h, data(T, (count, batch, hidden), 41, True)) if mode == "LSTM" else h


def of_one(states):
    """The states of the first sequence, without a batch."""
    return tuple(map(of_one, states)) if isinstance(states, tuple) else states[:, 0].detach()


X = (3, 2, 2)
CASES = {
    "plain": lambda T, mode: run(T, layer(T, mode), data(T, X, 1, True)),
    "with a state": lambda T, mode: run(T, layer(T, mode), data(T, X, 1, True), states(T, mode, 1)),
    "two layers, both directions": lambda T, mode: run(
        T, layer(T, mode, num_layers=2, bidirectional=True), data(T, X, 1, True), states(T, mode, 4)
    ),
    "batch first, no bias": lambda T, mode: run(
        T, layer(T, mode, batch_first=True, bias=False), data(T, (2, 3, 2), 1, True), states(T, mode, 1)
    ),
    "unbatched": lambda T, mode: run(T, layer(T, mode), data(T, (3, 2), 1, True)),
    "unbatched with a state": lambda T, mode: run(
        T, layer(T, mode, batch_first=True), data(T, (3, 2), 1, True),
        of_one(states(T, mode, 1)),
    ),
    "packed": lambda T, mode: run(
        T, layer(T, mode, bidirectional=True), packed(T, data(T, X, 1)), states(T, mode, 2)
    ),
    "packed, no state": lambda T, mode: run(T, layer(T, mode), packed(T, data(T, X, 1))),
    "evaluation": lambda T, mode: run(T, layer(T, mode, num_layers=2, dropout=0.5).eval(), data(T, X, 1)),
}  # fmt: skip


@pytest.mark.one_in(3)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_layers_give_what_torch_gives(case, mode):
    as_torch(lambda T: case(T, mode))


def test_relu():
    as_torch(lambda T: run(T, layer(T, "RNN", nonlinearity="relu"), data(T, X, 1)))


def test_projections():
    as_torch(lambda T: run(T, layer(T, "LSTM", proj_size=2, bias=False), packed(T, data(T, X, 1))))


@pytest.mark.exhaustive
def test_projections_of_several_layers():
    def program(T):
        m = layer(T, "LSTM", proj_size=2, num_layers=2, bidirectional=True)
        return run(T, m, data(T, X, 1, True), states(T, "LSTM", 4, out=2))

    as_torch(program)


LOOKS = {
    "names": lambda T, mode: [(n, tuple(p.shape)) for n, p in layer(
        T, mode, num_layers=2, bidirectional=True).state_dict().items()],
    "without bias": lambda T, mode: list(layer(T, mode, bias=False).state_dict()),
    "repr": lambda T, mode: repr(layer(T, mode)),
    "repr with options": lambda T, mode: repr(
        layer(T, mode, num_layers=2, bias=False, batch_first=True, dropout=0.25, bidirectional=True)),
    "all weights": lambda T, mode: [[tuple(w.shape) for w in ws] for ws in layer(T, mode, num_layers=2).all_weights],
    "flat": lambda T, mode: [layer(T, mode).flatten_parameters(), len(layer(T, mode)._flat_weights)],
    "copies": lambda T, mode: [
        run(T, way(layer(T, mode)), data(T, X, 1))
        for way in (copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)))
    ],
    "another weight": lambda T, mode: [
        setattr(m := layer(T, mode), "weight_hh_l0", T.nn.Parameter(m.weight_hh_l0.detach() * 0)),
        run(T, m, data(T, X, 1)),
    ],
    "bounds": lambda T, mode: [bool(p.abs().max() <= 0.25) for p in getattr(T.nn, mode)(2, 16).parameters()],
}  # fmt: skip


@pytest.mark.one_in(2)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_layers_look_as_in_torch(look, mode):
    as_torch(lambda T: look(T, mode))


def test_projection_has_a_name_and_a_text():
    as_torch(lambda T: [repr(layer(T, "LSTM", proj_size=2)), list(layer(T, "LSTM", proj_size=2).state_dict())])
    as_torch(lambda T: [layer(T, "RNN", nonlinearity="relu").mode, T.nn.RNN(2, 3, 1, "relu", False).bias])


def test_dropout_is_between_layers_in_training():
    xgrad.manual_seed(0)
    m = layer(xgrad, "LSTM", num_layers=2, dropout=0.5)
    x = data(xgrad, X)
    assert not bool((m(x)[0] == m(x)[0]).all())
    m.eval()
    assert bool((m(x)[0] == m(x)[0]).all())


ERRORS = {
    "input size": (lambda T: layer(T, "LSTM")(T.ones(3, 2, 5).double()), "must be equal to input_size. Expected 2"),
    "input dims": (lambda T: layer(T, "GRU")(T.ones(3).double()), "GRU: Expected input to be 2D or 3D, got 1D"),
    "dtype": (lambda T: layer(T, "RNN")(T.ones(3, 2, 2)), "RNN input dtype .* does not match weight dtype"),
    "hidden": (lambda T: layer(T, "GRU")(T.ones(3, 2, 2).double(), T.ones(1, 2, 4).double()), "Expected hidden size"),
    "cell": (
        lambda T: layer(T, "LSTM")(T.ones(3, 2, 2).double(), (T.ones(1, 2, 3).double(), T.ones(1, 2, 4).double())),
        r"Expected hidden\[1\] size \(1, 2, 3\), got \[1, 2, 4\]",
    ),
    "hidden dims": (lambda T: layer(T, "GRU")(T.ones(3, 2, 2).double(), T.ones(2, 3).double()), "hx should also be"),
    "unbatched hidden": (
        lambda T: layer(T, "LSTM")(T.ones(3, 2).double(), (T.ones(1, 1, 3).double(), T.ones(1, 1, 3).double())),
        "hx and cx should also be 2-D",
    ),
    "dropout": (lambda T: T.nn.RNN(2, 3, dropout=2), r"dropout should be a number in range"),
    "bias": (lambda T: T.nn.GRU(2, 3, bias=1), "bias should be of type bool, got: int"),
    "sizes": (lambda T: T.nn.GRU(2.0, 3), "input_size should be of type int, got: float"),
    "no hidden": (lambda T: T.nn.LSTM(2, 0), "hidden_size must be greater than zero"),
    "no layers": (lambda T: T.nn.LSTM(2, 1, 0), "num_layers must be greater than zero"),
    "projection": (lambda T: T.nn.LSTM(2, 3, proj_size=3), "proj_size has to be smaller than hidden_size"),
    "no projection": (lambda T: T.nn.GRU(2, 3, proj_size=1), "only supported for LSTM"),
    "nonlinearity": (lambda T: T.nn.RNN(2, 3, nonlinearity="x"), "Unknown nonlinearity 'x'"),
    "cell input": (lambda T: T.nn.LSTMCell(2, 3)(T.ones(1, 1, 2)), "LSTMCell: Expected input to be 1D or 2D, got 3D"),
    "cell hidden": (lambda T: T.nn.GRUCell(2, 3)(T.ones(1, 2), T.ones(1, 1, 3)), "Expected hidden to be 1D or 2D"),
    "cell size": (lambda T: T.nn.GRUCell(2, 3)(T.ones(1, 4)), "input has inconsistent input_size"),
    "cell nonlinearity": (lambda T: T.nn.RNNCell(2, 3, nonlinearity="x")(T.ones(1, 2)), "Unknown nonlinearity: x"),
}  # fmt: skip


@pytest.mark.parametrize(("program", "match"), ERRORS.values(), ids=ERRORS)
def test_errors_say_what_torch_says(program, match):
    same_error(program, match)


def test_dropout_of_one_layer_is_warned_about():
    with pytest.warns(UserWarning, match="dropout option adds dropout after all but last"):
        xgrad.nn.LSTM(2, 3, dropout=0.5)


CELLS = {
    "batch": lambda T, cell, s: run(T, layer(T, cell), data(T, (2, 2), 1, True)),
    "state": lambda T, cell, s: run(T, layer(T, cell), data(T, (2, 2), 1, True), s(2, 3)),
    "unbatched": lambda T, cell, s: run(T, layer(T, cell), data(T, (2,), 1, True), s(3)),
    "no bias": lambda T, cell, s: run(T, layer(T, cell, bias=False), data(T, (2, 2), 1, True), s(2, 3)),
    "looks": lambda T, cell, s: [
        repr(layer(T, cell)), repr(layer(T, cell, bias=False)), list(layer(T, cell).state_dict())
    ],
}  # fmt: skip


@pytest.mark.parametrize("cell", ["RNNCell", "LSTMCell", "GRUCell"])
@pytest.mark.parametrize("case", CELLS.values(), ids=CELLS)
def test_cells_give_what_torch_gives(case, cell):
    def program(T):
        def state(*shape):
            h = data(T, shape, 40, True)
            return (h, data(T, shape, 41, True)) if cell == "LSTMCell" else h

        return case(T, cell, state)

    as_torch(program)


@pytest.mark.parametrize("mode", MODES)
def test_outputs_may_be_written(mode):
    def program(T):
        out, states = layer(T, mode, num_layers=2)(x := data(T, X, 1, True))
        out.mul_(2)
        for state in flat(states):
            state.mul_(3)
        sum(t.sum() for t in (out, *flat(states))).backward()
        return out, x.grad

    as_torch(program)


@pytest.mark.parametrize("mode", MODES)
def test_second_derivatives(mode):
    def program(T):
        m = layer(T, mode, bidirectional=True)
        x = data(T, X, 1, True)
        given = (x, *flat(first := states(T, mode, 2)), *m.parameters())
        out = flat(m(x, first))
        found = T.autograd.grad(sum((t * t).sum() for t in out), given, create_graph=True)
        sum((g * g).sum() for g in found).backward()
        return [t.grad for t in given]

    as_torch(program)


@pytest.mark.parametrize("mode", MODES)
def test_backward_multiplies_by_the_weight_of_the_state_once_in_each_step(mode):
    m = layer(xgrad, mode)

    def program(x):
        out = m(xgrad.tensor(x))[0]
        return [g._read() for g in xgrad.autograd.grad(out.sum(), list(m.parameters()))]

    def loops(jaxpr):
        """The number of products in each loop."""
        for equation in jaxpr.eqns:
            for inner in equation.params.values():
                if hasattr(inner, "jaxpr") and equation.primitive.name == "scan":
                    yield str(inner).count("dot_general")
                elif hasattr(inner, "jaxpr"):
                    yield from loops(inner.jaxpr)

    found = list(loops(jax.make_jaxpr(program)(np.ones(X)).jaxpr))
    assert found == [1, 0, 1]  # forward, the cells, backward


def test_a_cell_with_relu():
    as_torch(lambda T: [repr(m := layer(T, "RNNCell", nonlinearity="relu")), run(T, m, data(T, (2, 2), 1, True))])


def test_a_step_with_a_layer_compiles():
    m = layer(xgrad, "LSTM")
    x = data(xgrad, X)

    @xgrad.compile
    def step(x):
        out, _ = m(x)
        (out * out).sum().backward()
        return out

    expected = m(x)[0]
    assert bool(xgrad.allclose(step(x), expected))
    assert m.weight_ih_l0.grad is not None


def test_a_compiled_function_takes_and_returns_a_packed_sequence():
    layer = xgrad.nn.LSTM(2, 3)

    def step(packed):
        layer.zero_grad()
        out, (h, _) = layer(packed)
        padded, lengths = xgrad.nn.utils.rnn.pad_packed_sequence(out)
        (padded.sum() + 2 * h.sum()).backward()
        return out, padded, lengths, layer.weight_ih_l0.grad.clone(), packed

    def leaves(value):
        return [x for item in value for x in leaves(item)] if isinstance(value, tuple) else [value]

    compiled = xgrad.compile(step)
    for number, lengths in enumerate([[2, 4, 3], [2, 4, 3], [3, 4, 2], [4, 4, 1]]):
        x = data(xgrad, (4, 3, 2), number).float()
        packed = xgrad.nn.utils.rnn.pack_padded_sequence(x, xgrad.tensor(lengths), enforce_sorted=False)
        ours, expected = compiled(packed), step(packed)
        assert type(ours[0]) is type(ours[-1]) is type(packed)
        for mine, theirs in zip(leaves(ours), leaves(expected), strict=True):
            assert mine.dtype is theirs.dtype
            assert bool(xgrad.allclose(mine, theirs, atol=1e-6))
    assert compiled.metrics().traces == 3


def test_a_compiled_function_returns_a_packed_sequence_whose_sizes_it_computed():
    packed = xgrad.compile(lambda x, sizes: xgrad.nn.utils.rnn.PackedSequence(x * 2, sizes + 1))(
        xgrad.ones(5, 2), xgrad.tensor([2, 1])
    )
    assert packed.batch_sizes.tolist() == [3, 2]


def test_a_size_of_a_packed_sequence_is_read_in_a_compiled_function():
    step = xgrad.compile(lambda packed: packed.data * int(packed.batch_sizes[0]) * packed.batch_sizes[1:].tolist()[-1])
    for sizes in ([2, 1], [3, 3]):
        packed = xgrad.nn.utils.rnn.PackedSequence(xgrad.ones(sum(sizes), 2), xgrad.tensor(sizes))
        assert (step(packed) == sizes[0] * sizes[1]).all()
    outside = xgrad.tensor([2, 1])
    with pytest.raises(xgrad.errors.TracedValueError):
        xgrad.compile(lambda x: x * int(outside[0]))(xgrad.ones(2))


def test_sequences_are_packed_and_padded_in_a_compiled_function():
    m = layer(xgrad, "GRU")
    of = importlib.import_module("xgrad.nn.utils.rnn")

    def step(x):
        out, h = m(packed(xgrad, x))
        out, _ = of.pad_packed_sequence(out)
        out.sum().backward()
        return out, h, m.weight_hh_l0.grad

    x = data(xgrad, X)
    expected = [t.detach().clone() for t in step(x)]
    m.zero_grad()
    for ours, theirs in zip(xgrad.compile(step)(x), expected):
        assert bool(xgrad.allclose(ours, theirs))
