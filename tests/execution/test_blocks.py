"""Lazy blocks that tasks and generators enter and leave in turns, that threads share, and that decorate."""

import asyncio
import threading

import pytest

import xgrad
from xgrad.execution.runner import runner

pytestmark = pytest.mark.skipif(runner.always_lazy, reason="every thread is lazy: no block ends")


def lazy():
    return xgrad.config.state.queue is not None


def test_tasks_that_take_turns_leave_the_thread_eager():
    async def task(k):
        with xgrad.lazy():
            x = xgrad.ones(3)
            for _ in range(3):
                x = x * 2 + k
                await asyncio.sleep(0.001 * (k + 1))
                assert lazy()
        return x

    async def main():
        return await asyncio.gather(task(0), task(1))

    first, second = asyncio.run(main())
    assert not lazy()
    assert (first.tolist(), second.tolist()) == ([8, 8, 8], [15, 15, 15])


def test_a_block_that_ends_before_an_inner_one_evaluates_and_leaves_that_lazy():
    outer, inner = xgrad.lazy(), xgrad.lazy()
    outer.__enter__()
    inner.__enter__()
    x = xgrad.ones(3) * 2
    outer.__exit__(None, None, None)
    assert lazy()
    assert "test_blocks" not in xgrad.lazy.pending()  # a lazy backend of another file may have its own there
    y = x * 2
    inner.__exit__(None, None, None)
    assert not lazy()
    assert y._array.value is not None


def test_threads_may_share_a_block_object():
    block, inside, leave, found = xgrad.lazy(), threading.Event(), threading.Event(), []

    def work():
        with block:
            inside.set()
            leave.wait(30)
        found.append(lazy())

    thread = threading.Thread(target=work)
    with xgrad.lazy():
        with block:
            thread.start()
            assert inside.wait(30)
        leave.set()
        thread.join()
        assert found == [False]
        assert lazy()
    assert not lazy()


def test_steps_of_a_decorated_generator_are_lazy_and_its_caller_is_not():
    @xgrad.lazy()
    def steps(x):
        for _ in range(2):
            x = x * 2
            assert lazy()
            assert (yield x) is None
        xs.append(x * 2)

    xs = []
    for x in steps(xgrad.ones(3)):
        assert not lazy()
        assert x._array.value is not None
        xs.append(x)
    assert [x.tolist()[0] for x in xs] == [2, 4, 8]


def test_a_decorated_coroutine_is_lazy():
    @xgrad.lazy()
    async def twice(x):
        assert lazy()
        await asyncio.sleep(0)
        return x * 2

    y = asyncio.run(twice(xgrad.ones(3)))
    assert not lazy()
    assert y._array.value is not None
