"""Selective checkpoints keep the results of chosen operators; debugging checkpoints tell which operators ran."""

import functools

import pytest
import torch.utils.checkpoint  # noqa: F401 - the oracle's programs use it

import xgrad
from xgrad.config import state
from xgrad.utils.checkpoint import (
    CheckpointError,
    CheckpointPolicy,
    SelectiveCheckpointContext,
    checkpoint,
    create_selective_checkpoint_contexts,
    set_checkpoint_debug_enabled,
)

from ..oracle import leaf, outcome, same, same_error

F = xgrad.nn.functional


def selective(function, *args, keep, **options):
    context_fn = functools.partial(create_selective_checkpoint_contexts, keep)
    return checkpoint(function, *args, use_reentrant=False, context_fn=context_fn, **options)


def block(x, w):
    y = (x @ w).sin()
    y = F.softmax(y + 1, -1) * 2
    y.add_(y[0])
    best = xgrad.max(y, 1)
    return best[0] + y.t()[0].exp() - y.max()


def policy_of(*keep):
    def policy(ctx, op, *args, **kwargs):
        return CheckpointPolicy.MUST_SAVE if op in keep else CheckpointPolicy.PREFER_RECOMPUTE

    return policy


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    "keep",
    [
        [xgrad.matmul],
        [xgrad.softmax, xgrad.max],
        policy_of(xgrad.sin, xgrad.matmul),
        lambda *a, **k: True,
        lambda *a, **k: False,
        lambda *a, **k: CheckpointPolicy.PREFER_CPU_OFFLOAD,
    ],
)
def test_gradients_are_those_of_the_function(keep, path):
    def gradients(wrap):
        x, w = leaf(xgrad, 3, 3), leaf(xgrad, 3, 3, seed=1)
        y = wrap(x, w)
        y.sum().backward()
        return y, x.grad, w.grad

    same(gradients(lambda x, w: selective(block, x, w, keep=keep)), gradients(block))


def test_what_is_kept_is_not_computed_again():
    """An operator that calls back from its kernel tells how often it runs."""
    runs = []

    @xgrad.dispatch.declare.operator(jit=False, method=False, function=False)
    def tell(self):
        runs.append(1)
        return self * 2

    tell.derivative(self=lambda grad: grad * 2)
    x = leaf(xgrad, 3)

    def function(x):
        return tell.function(x.sin()).exp()

    for keep, times in ((lambda *a, **k: False, 2), (lambda ctx, op, *a, **k: op is tell.operator, 1)):
        runs.clear()
        selective(function, x, keep=keep).sum().backward()
        assert len(runs) == times
    del xgrad.dispatch.declare.OPERATORS["tell"]


def test_the_policy_sees_public_functions_arguments_and_results():
    seen = []

    def policy(ctx, op, *args, **kwargs):
        assert isinstance(ctx, SelectiveCheckpointContext)
        assert not ctx.is_recompute
        seen.append((op, len(args), kwargs.get("dim"), ctx.op_output))
        return False

    x, w = leaf(xgrad, 3, 3), leaf(xgrad, 3, 3, seed=1)
    y = selective(block, x, w, keep=policy)
    assert [op for op, *_ in seen] == [
        xgrad.matmul, xgrad.sin, xgrad.add, xgrad.softmax, xgrad.mul, xgrad.max, xgrad.exp, xgrad.add, xgrad.max,
        xgrad.sub,
    ]  # fmt: skip
    assert seen[3][1:3] == (1, -1)
    assert seen[-1][3] is y
    y.sum().backward()
    assert len(seen) == 10  # it is asked in the first run only


def test_a_list_takes_functions_by_all_their_names():
    x = leaf(xgrad, 3)
    for keep in ([F.relu], [xgrad.relu], [xgrad.Tensor.relu]):
        selective(lambda x: x.relu().exp(), x, keep=keep).sum().backward()


def test_a_second_backward_is_refused():
    def program(T):
        C = T.utils.checkpoint
        x = leaf(T, 3)

        def keep():
            return C.create_selective_checkpoint_contexts(lambda ctx, op, *a, **k: C.CheckpointPolicy.MUST_SAVE)

        y = C.checkpoint(lambda x: x.sin().exp(), x, use_reentrant=False, context_fn=keep).sum()
        y.backward(retain_graph=True)
        y.backward()

    same_error(program, "Trying to backward an extra time")


@pytest.mark.parametrize("second", [lambda x: x.cos().exp(), lambda x: x.sin().sin().exp()])
def test_other_operators_in_the_recomputation_are_refused(second):
    def program(T):
        C = T.utils.checkpoint
        functions = iter((lambda x: x.sin().exp(), second))

        def keep():
            return C.create_selective_checkpoint_contexts(lambda ctx, op, *a, **k: True)

        y = C.checkpoint(
            lambda x: next(functions)(x), leaf(T, 3), use_reentrant=False, context_fn=keep, early_stop=False
        )
        y.sum().backward()

    same_error(program, "encountered during backward but not found in storage")
    assert state.operator_mode is None


def test_what_is_neither_list_nor_function_is_refused():
    same_error(lambda T: T.utils.checkpoint.create_selective_checkpoint_contexts(3), "must be either a function or a")
    same_error(
        lambda T: T.utils.checkpoint.create_selective_checkpoint_contexts([3]), "Expected op in `op_list` to be an"
    )
    with pytest.raises(ValueError, match="views"):
        create_selective_checkpoint_contexts([xgrad.transpose])


def test_writing_over_a_kept_result_is_right():
    """PyTorch's kept results share memory with what is written, and are refused in backward."""

    def function(x):
        y = x.sin()
        z = y.exp()
        y.mul_(2)
        return y * z

    x = leaf(xgrad, 3)
    selective(function, x, keep=lambda *a, **k: True).sum().backward()
    v = x.detach()
    same(x.grad, 2 * v.cos() * v.sin().exp() * (1 + v.sin()))


def test_random_numbers_and_nested_checkpoints():
    def gradients(wrap):
        xgrad.manual_seed(2)
        x = leaf(xgrad, 3)
        y = wrap(lambda x: wrap(lambda x: F.dropout(x.exp()) * 2, x.sin()) * F.dropout(x), x)
        y.sum().backward()
        return y, x.grad

    keep = [xgrad.exp, xgrad.mul]
    same(gradients(lambda f, x: selective(f, x, keep=keep)), gradients(lambda f, x: f(x)))


def test_operators_called_elsewhere_are_not_seen():
    """Modes belong to the block and the thread; what a mode leaves behind sees nothing."""
    seen = []
    x = leaf(xgrad, 3)
    y = selective(lambda x: x.exp(), x, keep=lambda ctx, op, *a, **k: seen.append(op))
    y * 2
    y.sum().backward()
    assert seen == [xgrad.exp]


# -- debugging ---------------------------------------------------------------------------------------------------------


def changing(T):
    functions = iter((lambda x: x.sin().exp().add_(1), lambda x: x.sin()))
    return lambda x: next(functions)(x)


@pytest.mark.parametrize("globally", [False, True])
def test_debug_lists_the_operators_of_both_runs(globally):
    function = changing(xgrad)
    if globally:
        with set_checkpoint_debug_enabled(True):
            y = checkpoint(function, leaf(xgrad, 3), use_reentrant=False)
    else:
        y = checkpoint(function, leaf(xgrad, 3), use_reentrant=False, debug=True)
    error = outcome(lambda T: y.sum().backward(), xgrad)
    assert isinstance(error, CheckpointError)
    text = str(error)
    assert "A different number of tensors was saved" in text
    forward, again = text.split("Operations executed during")[1:]
    assert [line.split(" = ")[1] for line in forward.splitlines() if " = " in line] == [
        "sin(float64[3])", "exp(float64[3])", "add_(float64[3], 1)"
    ]  # fmt: skip
    assert [line.split(" = ")[1] for line in again.splitlines() if " = " in line] == ["sin(float64[3])"]
    assert __file__ in text  # where the user called it
    assert "xgrad/ops" not in text


def test_debug_can_be_switched_off_for_all():
    with set_checkpoint_debug_enabled(False):
        y = checkpoint(changing(xgrad), leaf(xgrad, 3), use_reentrant=False, debug=True)
    assert "Operations executed" not in str(outcome(lambda T: y.sum().backward(), xgrad))


def test_debug_with_torchs_header():
    # Not beside torch: its own debug mode logs records that other log handlers of a process cannot format.
    y = checkpoint(changing(xgrad), leaf(xgrad, 3), use_reentrant=False, debug=True)
    with pytest.raises(CheckpointError) as error:
        y.sum().backward()
    assert str(error.value).startswith("An error happened while unpacking tensors")
    assert "Detected non-determinism while running activation checkpointing" in str(error.value)
