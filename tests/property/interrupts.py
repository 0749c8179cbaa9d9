"""Attack: interrupts at random times during writes; no value may be lost, or be half of what it was to become.

Each kind is a piece of work that is done again and again until a signal arrives, at a time drawn at random, as Ctrl-C
would: the handler raises in the main thread.  Then a check looks at what there is.
"""

import contextlib
import gc
import random
import signal
import threading
import time
from collections import Counter

import jax
import numpy as np

import xgrad
from xgrad.config import state
from xgrad.execution.donation import through_jax
from xgrad.views.storage import writing

N = 50_000


class Interrupt(BaseException):
    """As KeyboardInterrupt, which a test runner would take for its own."""


def _raise(*_):
    raise Interrupt


class Kind:
    """One kind of write.  `work` is interrupted; `check` says what is wrong afterwards, and `make` begins again."""

    def make(self):
        raise NotImplementedError

    def work(self):
        raise NotImplementedError

    def check(self):
        raise NotImplementedError


def values(tensor):
    """The one value that all elements have."""
    found = np.unique(tensor.detach().numpy(force=True))
    assert len(found) == 1, f"{len(found)} values in one tensor"
    return float(found[0])


def versions(tensor, count):
    assert tensor._version == count, f"version {tensor._version} after {count} writes"


class Eager(Kind):
    """`add_` to a tensor without views."""

    def make(self):
        self.x, self.one = xgrad.zeros(N), xgrad.ones(N)
        self.done = 0

    def work(self):
        self.x.add_(self.one)

    def check(self):
        versions(self.x, values(self.x))


class Recorded(Kind):
    """`mul_` of a tensor that requires grad: value and history belong together."""

    def make(self):
        self.w = xgrad.full((N,), 2.0, requires_grad=True)
        self.x = self.w.clone()

    def work(self):
        if self.x._version > 4:
            self.x = self.w.clone()
        self.x.mul_(self.w)

    def check(self):
        power = np.log2(values(self.x))
        versions(self.x, power - 1)
        (grad,) = xgrad.autograd.grad(self.x.sum(), self.w)
        assert values(grad) == (self.x._version + 1) * 2**self.x._version, "the history is another value's"
        self.x = self.w.clone()


class View(Kind):
    """A write through a view, which its siblings see."""

    def make(self):
        self.base, self.one = xgrad.zeros(4, N), xgrad.ones(N)
        self.row, self.twin, self.flat = self.base[1], self.base[1], self.base.view(-1)

    def work(self):
        self.row.add_(self.one)
        self.twin._read()

    def check(self):
        count = values(self.row)
        assert values(self.twin) == values(self.base[1]) == values(self.flat[N : 2 * N]) == count
        assert values(self.base[0]) == values(self.base[2:]) == 0
        versions(self.base, count)


class RecordedView(Kind):
    """A recorded write through a view: CopySlices."""

    def make(self):
        self.w = xgrad.full((N,), 2.0, requires_grad=True)
        self._new()

    def _new(self):
        base = xgrad.ones(4, N) * self.w
        row = base[1]
        self.base, self.row = base, row  # both or none: no call between

    def work(self):
        if self.base._version > 4:
            self._new()
        self.row.mul_(self.w)

    def check(self):
        count = self.base._version
        assert values(self.row) == 2.0 ** (count + 1), f"{values(self.row)} after {count} writes"
        assert values(self.base[1]) == 2.0 ** (count + 1), "the base has not what its view has"
        (grad,) = xgrad.autograd.grad(self.base.sum(), self.w)
        assert values(grad) == 3 + (count + 1) * 2.0**count, "the history is another value's"
        self._new()


class Filled(Kind):
    """`copy_` into a slice, `zero_`, and assignment."""

    def make(self):
        self.base, self.row = xgrad.zeros(4, N), xgrad.full((N,), 1.0)

    def work(self):
        self.base[2].zero_()
        self.base[2] = self.row
        self.base[2:].copy_(self.row)

    def check(self):
        assert values(self.base[2]) in (0, 1)
        assert values(self.base[3]) in (0, 1)
        assert values(self.base[:2]) == 0


class Accumulated(Kind):
    """Backward, which adds to `.grad` in place."""

    compiled = None

    def make(self):
        self.w = xgrad.full((N,), 2.0, requires_grad=True)
        self.v = xgrad.full((N,), 3.0, requires_grad=True)
        self.last = {}

    def work(self):
        loss = (self.w * self.v * self.w).sum()
        loss.backward(compiled=self.compiled)

    def check(self):
        for leaf, each in ((self.w, 12.0), (self.v, 4.0)):
            if leaf.grad is not None:
                count = values(leaf.grad) / each
                assert count == int(count), "a gradient that no backward gives"
                assert leaf.grad._version == max(count - 1, 0), f"version {leaf.grad._version} after {count} backwards"
                if count > 1000:
                    leaf.grad = None


class CompiledBackward(Accumulated):
    """The same, as compiled programs."""

    compiled = True


class ThroughViews(Kind):
    """Backward through writes to views: CopySlices, whose gradients are written in place."""

    def make(self):
        self.w = xgrad.full((N,), 2.0, requires_grad=True)

    def work(self):
        base = xgrad.zeros(4, N) * 1.0
        for i in range(3):
            base[i].copy_(self.w)
        base.view(-1)[:N].mul_(2.0)
        base.sum().backward()

    def check(self):
        if self.w.grad is not None:
            assert values(self.w.grad) % 4 == 0, "a gradient that no backward gives"


class Step(Kind):
    """A compiled step with weights, momentum, a counter and a generator."""

    def make(self):
        self.w = xgrad.zeros(N, requires_grad=True)
        self.momentum, self.count = xgrad.zeros(N), xgrad.zeros(())
        self.head = self.momentum[:7]
        self.x = xgrad.ones(N)

        def step(x):
            self.w.grad = None
            (self.w * x).sum().backward()
            with xgrad.no_grad():
                self.momentum.add_(self.w.grad)
                self.w.add_(self.momentum, alpha=0).add_(x)
                self.count.add_(1)
            return self.w.sum()

        self.step = xgrad.compile(step)
        self.step(self.x)

    def work(self):
        self.step(self.x)

    def check(self):
        count = values(self.count)
        assert values(self.momentum) == values(self.w) == values(self.head) == count, "half of a step"
        versions(self.momentum, count)
        versions(self.w, 2 * count)
        assert values(self.w.grad) == 1


class Optimizer(Kind):
    """A step of an optimizer of optax's."""

    def make(self):
        import optax

        from xgrad.interop.optax import Optimizer as Wrapped

        w, v = xgrad.zeros(N, requires_grad=True), xgrad.zeros(N, requires_grad=True)
        w.grad, v.grad = xgrad.ones(N), xgrad.ones(N)
        optimizer = Wrapped([w, v], optax.sgd(1.0, momentum=1.0))
        optimizer.step()
        self.w, self.v, self.optimizer = w, v, optimizer  # all or none: no call between

    def work(self):
        if self.w._version > 1000:
            self.make()
        self.optimizer.step()

    def check(self):
        n = self.w._version
        assert self.v._version == n
        assert values(self.w) == values(self.v) == -n * (n + 1) / 2, "half of a step"


class Several(Optimizer):
    """A step of an optimizer of xgrad's, which writes several tensors by one program, one of them with a view."""

    def make(self):
        w, v = xgrad.zeros(N, requires_grad=True), xgrad.zeros(N, requires_grad=True)
        w.grad, v.grad = xgrad.ones(N), xgrad.ones(N)
        head, optimizer = v[:7].detach(), xgrad.optim.SGD([w, v], lr=1.0, momentum=1.0)
        optimizer.step()
        self.w, self.v, self.head, self.optimizer = w, v, head, optimizer

    def check(self):
        super().check()
        assert values(self.head) == values(self.v)


class Lazily(Kind):
    """Writes in a lazy block: one program at its end, which donates what they replace."""

    def make(self):
        self.x, self.y, self.one = xgrad.zeros(N), xgrad.zeros(N), xgrad.ones(N)
        self.head = self.y[:7]

    def work(self):
        with xgrad.lazy():
            self.x.add_(self.one)
            self.y.add_(self.one)
            self.head.mul_(1.0)

    def check(self):
        versions(self.x, values(self.x))
        assert values(self.head) == values(self.y)


class Resized(Kind):
    """`resize_`, which lets a storage grow."""

    def make(self):
        self.x = xgrad.ones(16)

    def work(self):
        n = self.x.numel()
        self.x.resize_(n + 16 if n < 128 else 16)

    def check(self):
        seen = self.x.numpy(force=True)
        assert seen.ndim == 1
        assert (seen[:16] == 1).all()
        assert set(np.unique(seen)) <= {0.0, 1.0}


class Modes(Kind):
    """What switches modes while it works: checkpoints, transforms, batches, tangents, Functions, hooks, a trace."""

    def make(self):
        self.x = xgrad.full((3,), 2.0, requires_grad=True)
        self.x.register_hook(lambda grad: grad * 1)
        self.turn = 0

        class Twice(xgrad.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, grad):
                return grad * 2

            @staticmethod
            def jvp(ctx, tangent):
                return tangent * 2

        f = xgrad.func
        checkpoint = xgrad.utils.checkpoint.checkpoint
        ones = xgrad.ones(3)
        self.works = [
            lambda: checkpoint(Twice.apply, self.x, use_reentrant=False).sum().backward(),
            lambda: checkpoint(Twice.apply, self.x, use_reentrant=True).sum().backward(),
            lambda: f.grad(lambda x: Twice.apply(x).sum())(ones),
            lambda: f.vmap(f.grad(lambda x: x * x))(ones),
            lambda: f.jvp(lambda x: Twice.apply(x)[:2] * x[1:], (ones,), (ones,)),
            lambda: f.linearize(lambda x: x * x, ones)[1](ones),
            lambda: xgrad.autograd.functional.hessian(lambda x: (x * x).sum(), ones[:1]),
            lambda: xgrad.autograd.grad((self.x * self.x).sum(), self.x, create_graph=True, compiled=False),
        ]

    def work(self):
        self.turn += 1
        self.works[self.turn % len(self.works)]()

    def check(self):
        modes()


class Blocks(Kind):
    """Blocks that switch a mode, one within another, and nothing else."""

    def make(self):
        graph = xgrad.autograd.graph
        self.blocks = [
            xgrad.lazy, lambda: xgrad.autocast("cpu"), lambda: xgrad.device("cpu"), xgrad.overrides.disable_overrides,
            xgrad.autograd.forward_ad.dual_level, graph.allow_mutation_on_saved_tensors, xgrad.inference_mode,
            lambda: graph.saved_tensors_hooks(lambda x: x, lambda x: x), xgrad.autograd.profiler.profile,
        ]  # fmt: skip
        self.turn = 0

    def work(self):
        for _ in range(20):
            self.turn += 1
            with self.blocks[self.turn % len(self.blocks)](), xgrad.no_grad():
                pass

    def check(self):
        modes()


class BackendMemory(Kind):
    """Arrays of a declared backend come and go: its count of their bytes is exact."""

    def make(self):
        if not hasattr(self, "x"):
            self.x = xgrad.ones(N, device=xgrad.Backend("counted", memory=100 * N))
        self.y = None

    def work(self):
        for _ in range(5):
            self.y = self.x + 1

    def check(self):
        self.y = None
        memory = self.x._read().sharding.runtime.memory
        if memory.used != 4 * N:
            gc.collect()  # an interrupt's traceback may be part of a cycle
        used = memory.used
        assert used == 4 * N, f"{used} bytes are counted, and {4 * N} in use"


class BackendFaults(Kind):
    """Writes on a declared backend whose launches fail now and then, beside the interrupts."""

    def make(self):
        if not hasattr(self, "chip"):
            faults = xgrad.backends.Faults(launch=0.1, memory=0.1, taken=0.0)
            self.chip = xgrad.Backend("failing", faults=faults)
        self.x = self.one = None
        while self.one is None:
            with contextlib.suppress(RuntimeError):
                self.x, self.one = xgrad.zeros(N, device=self.chip), xgrad.ones(N, device=self.chip)

    def work(self):
        with contextlib.suppress(jax.errors.JaxRuntimeError, xgrad.errors.OutOfMemoryError):
            self.x.add_(self.one)

    def check(self):
        versions(self.x, values(self.x))


class Waiting(Kind):
    """Writes through views that wait, on a declared backend, until somebody reads."""

    def make(self):
        if not hasattr(self, "chip"):
            self.chip = xgrad.Backend("waiting", aliasing="regenerate")
        with self.chip.activate():
            self.base, self.one, self.none = xgrad.zeros(4, N), xgrad.ones(N), xgrad.zeros(N)
        self.row, self.twin = self.base[1], self.base[1]

    def work(self):
        self.row.add_(self.one)
        self.base[2].copy_(self.none)
        self.row.add_(self.one)
        self.twin._read()

    def check(self):
        count = values(self.row)
        assert values(self.twin) == values(self.base[1]) == count
        assert values(self.base[0]) == values(self.base[2:]) == 0
        assert self.base._version >= count


KINDS = {
    "eager": Eager, "recorded": Recorded, "view": View, "recorded view": RecordedView, "filled": Filled,
    "accumulation": Accumulated, "copy slices": ThroughViews, "compiled step": Step, "optimizer": Optimizer,
    "several tensors": Several, "lazy writes": Lazily,
    "compiled backward": CompiledBackward, "resize_": Resized, "modes": Modes,
    "blocks": Blocks,
    # The last ones: from then on all look for backends.
    "backend memory": BackendMemory, "backend faults": BackendFaults, "writes that wait": Waiting,
}  # fmt: skip


MODES = {
    "grad_enabled": True, "trace": None, "overlay": None, "graph_task": None, "current_node": None, "saved_hooks": (),
    "forward_level": -1, "outer_forward_levels": (), "compiled": None, "transforms": 0, "vmap_levels": (),
    "random_log": None, "random_again": None, "generator": None, "autocast": None, "inference": False,
    "lazy": None, "queue": None, "lazy_blocks": (), "autocast_nesting": 0, "place": None, "places": (),
    "overrides_disabled": False, "mutation_allowed": None, "operator_mode": None, "recorder": None, "dual_level": -1,
}  # fmt: skip


def modes():
    """Whether modes are as they were."""
    left = {name: value for name, value in MODES.items() if getattr(state, name) != value}
    assert not left, f"a mode is left: {list(left)}"


def usable():
    """Whether locks and modes are as they were."""
    modes()
    assert "__getattribute__" not in vars(xgrad.Tensor), "a trace is left"
    free = []

    def take():
        with contextlib.ExitStack() as taken:
            for lock in (writing, xgrad.random.default_generator._lock):
                if lock.acquire(timeout=5):
                    taken.callback(lock.release)
                    free.append(lock)

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    assert len(free) == 2, "a lock is held"


def interrupted(kind, chosen, longest):
    """Work until a signal arrives; whether one did."""
    try:
        _until_then(kind, 1e-6 + chosen.random() * longest, longest + 1)
    except Interrupt:
        return True
    finally:
        with contextlib.suppress(Interrupt):
            signal.setitimer(signal.ITIMER_REAL, 0)
    return False


def _until_then(kind, due, longest):
    """Work until the signal comes.  In a frame of its own: in 3.13 a loop's head is outside of the `try` around it."""
    signal.setitimer(signal.ITIMER_REAL, due)
    stop = time.monotonic() + longest
    while time.monotonic() < stop:
        kind.work()


def attack(name, seconds, seed):
    """How many interrupts one kind of write was given, and after how many something was wrong."""
    # JAX has an `except:` here and there that makes an error of its own of any interrupt: its frames tell, if it shows
    # them.
    jax.config.update("jax_traceback_filtering", "off")
    chosen, kind = random.Random(f"{name} {seed}"), KINDS[name]()
    kind.make()
    for _ in range(3):
        kind.work()  # compiled by now
    begun = time.perf_counter()
    kind.work()
    longest = 3 * (time.perf_counter() - begun)
    counts = Counter(tried=0, lost=0, other=0)
    stop = time.monotonic() + seconds
    while time.monotonic() < stop:
        try:
            counts["tried"] += interrupted(kind, chosen, longest)
            kind.check()
            if counts["tried"] % 16 == 0:
                usable()
            kind.work()  # and go on: what was interrupted while it was compiled is compiled here
            kind.check()
        except Exception as error:
            # JAX's caches of traces may be left broken by an interrupt: counted, and not called a loss.
            gone = isinstance(error, xgrad.errors.LostValueError) or "deleted" in str(error)
            known = through_jax(error) and not gone
            counts["other" if known else "lost"] += 1
            counts[f"{type(error).__name__}: {str(error)[:100]}"] += 1
            for name in MODES:
                setattr(state, name, getattr(type(state), name))
            if known:
                jax.clear_caches()
            kind.make()
            kind.work()
    return dict(counts)


def run(seconds, seed):
    """Attack each kind of write for its share of `seconds`: {kind: {"tried": ..., "lost": ..., what: how often}}.

    "other": what is left of an interrupt in JAX's caches.
    """
    before = signal.signal(signal.SIGALRM, _raise)
    try:
        return {name: attack(name, seconds / len(KINDS), seed) for name in KINDS}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
