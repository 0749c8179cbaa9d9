"""A deep model of equal layers, and failures in the parts of its program, for tests of programs that run in parts."""

import xgrad
from xgrad import nn
from xgrad.execution import segments


def deep(count, width=8):
    xgrad.manual_seed(0)
    return nn.Sequential(
        *[nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.LayerNorm(width)) for _ in range(count)]
    )


def fail(monkeypatch, number, error):
    """Let the next program fail: before its last segments, or in one of these."""
    run = segments.Segments.run

    def raises(*operands):
        raise error

    def failing(self, values, live):
        before, calls = run(self, values, live)
        if number is None:
            raise error
        assert len(calls) > number + 1
        calls[number] = (raises, *calls[number][1:])
        return before, calls

    monkeypatch.setattr(segments.Segments, "run", failing)
