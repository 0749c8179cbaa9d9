"""Sizes and numbers at the limits, for every function of the table: each ends in a result or in an error of Python's.

Calls run in a process of their own, so that an abort is a finding, and so is a call that does not return.  torch
decides, where it has a verdict: the same shape, the same few values, and an error where it says that a size overflows
or that memory lacks.  Neither library may take more than `HEADROOM`: numbers are tiny, or larger than that.
"""

import argparse
import json
import os
import queue
import random
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from pathlib import Path

LARGE = tuple(2**k for k in (31, 32, 33, 40, 53, 60, 61, 62)) + (2**31 - 1, 2**40 + 1, 2**62 + 1, 2**63 - 1)
BEYOND = (2**63, 2**64, 2**64 + 4, -1, -(2**31), -(2**62), -(2**63))
SMALL = (0, 1, 2, 3, 4)
HEADROOM = 1900 << 20  # bytes
SECONDS = 60  # of one call, on a machine that is busy
PATIENCE = 5  # with torch, which goes through all elements of an expanded view
DTYPES = ("T.float32", "T.float64", "T.int32", "T.int64", "T.int8", "T.bool", "T.complex64")

# N is one number, S several; x: (4,), m: (2, 3), i: integers, s: a scalar, u: (0,), c: an image, e: an expanded view
KNOWN = """
T.empty(S)|T.zeros(S, dtype=D)|T.ones(S, dtype=D)|T.full((S), 2, dtype=D)|T.rand(S)|T.randn(S)|T.randint(5, (S,))
T.randperm(N)|T.eye(N)|T.eye(N, N)|T.arange(N)|T.arange(0, N, N)|T.arange(N, dtype=D)|T.linspace(0, 1, N)
T.logspace(0, 1, N)|T.tril_indices(N, N)|T.triu_indices(N, N, N)|T.empty_strided((S,), (S,))|T.hann_window(N)
T.kaiser_window(N)|T.blackman_window(N)|T.bartlett_window(N)|T.hamming_window(N)|T.signal.windows.cosine(N)
x.new_zeros(S)|x.new_empty(S)|x.new_full((S,), 3)|x.new_ones(S)|T.zeros_like(e)|T.ones_like(e)|T.full_like(e, 1)
T.empty_like(e)|T.rand_like(e)|T.randn_like(e)|T.randint_like(e, 3)|T.zeros_like(e, dtype=D)|e.clone()
e.contiguous()|x.resize_(S)|u.resize_(S)|x.resize_as_(e)|x.expand(S)|s.expand(S)|m.expand(S)|s.expand(S).shape
s.broadcast_to((S,))|x.repeat(S)|x.tile((S,))|m.repeat(S)|m.tile((S,))|u.repeat(S)|x.repeat_interleave(N)
m.repeat_interleave(N, 1)|x.repeat_interleave(T.tensor([1, 2, 3, N]))|x.as_strided((S,), (S,), N)
x.as_strided((S,), (0, 0))|x.as_strided((S,), (0,))|s.expand(N)[N]|s.expand(N)[N:]|s.expand(N)[::N]
s.expand(N).narrow(0, N, 2)|e[N]|e[-1]|e[N:].shape|e[:N].shape|x[N]|x[N:]|x[:N]|x[::N]|x[-N:]|x.narrow(0, N, N)
x.select(0, N)|x.unfold(0, N, N)|e.unfold(0, N, N).shape|x.roll(N)|x.diag(N)|m.diagonal(N)|T.diag_embed(x, N)
x.diagflat(N)|m.tril(N)|m.triu(N)|m.rot90(N)|T.vander(x, N)|T.tensor_split(x, N)|x.chunk(N)|x.split(N)|m.chunk(N, 1)
m.split(N, 1)|u.chunk(N)|u.split(N)|T.tensor_split(m, N, 1)|s.expand(N).unbind()|list(s.expand(N))
s.expand(N).tolist()|s.expand(N).split(1)|s.expand(N).chunk(N)|e.numpy().shape|T.combinations(x, N)
T.combinations(x, N, with_replacement=True)|T.combinations(s.expand(N), 2)|T.cartesian_prod(x, e)
T.meshgrid(e, e, indexing='ij')[0].shape|T.meshgrid(x, e, indexing='ij')[0].shape|T.cat([e, e])|T.stack([e, e])
T.outer(e, e)|e[:, None] + e|T.kron(e, e)|e + e|e * 1|T.einsum('i,j->ij', e, e)|T.einsum('i,j,k->ijk', e, e, e)
e[:, None] @ e[None]|T.matmul(e, e)|T.block_diag(m, e[None])|T.cdist(e[:, None], e[:, None])|e.sum()
T.tensordot(e, e, 0)|T.matrix_power(T.eye(2), N)|T.cov(e[None])|T.atleast_3d(e).shape
T.broadcast_tensors(e, e[:, None])[0].shape|T.bincount(i, minlength=N)|T.histc(x, bins=N)|T.histogram(x, bins=N)
T.nonzero_static(x, size=N)|T.take(x, T.tensor([N]))|T.gather(x, 0, T.tensor([N]))|x.index_select(0, T.tensor([N]))
x.topk(N)|x.kthvalue(N)|x.unflatten(0, (S,))|x.view(S)|x.reshape(S)|x.put_(T.tensor([N]), s)
T.multinomial(x, N, replacement=True)|T.polygamma(N, x)|T.mvlgamma(x + 9, N)|T.scatter_add(x, 0, T.tensor([N]), x)
T.index_add(x, 0, T.tensor([N]), s.expand(1))|x.view(T.int8).expand(S)|repr(s.expand(N))|F.one_hot(i, N)
F.one_hot(i.expand(S), 7)|F.pad(x, (N, N))|F.pad(m, (0, 0, N, N))|F.pad(c, (N, N, 1, 1), mode='reflect')
F.pad(c, (N, N), mode='constant')|F.interpolate(c, (N, N))|F.interpolate(c, scale_factor=N)
F.upsample(c, size=(N, 3))|F.interpolate(c, (N, N), mode='bilinear')|F.avg_pool2d(c, N, N, N)
F.max_pool2d(c, N, N, N)|F.avg_pool2d(c, 2, N)|F.adaptive_avg_pool2d(c, (N, N))|F.adaptive_max_pool2d(c, (N, 2))
F.unfold(c, N)|F.unfold(c, 2, padding=N)|F.unfold(c, 2, dilation=N)|F.fold(T.ones(1, 8, 16), (N, N), 2)
F.conv2d(c, T.ones(2, 2, 3, 3), padding=N)|F.conv2d(c, T.ones(2, 2, 3, 3), dilation=N)
F.conv2d(c, T.ones(2, 2, 3, 3), stride=N)|F.conv_transpose2d(c, T.ones(2, 2, 3, 3), stride=N)
F.conv_transpose2d(c, T.ones(2, 2, 3, 3), output_padding=N)|F.conv_transpose2d(c, T.ones(2, 2, 3, 3), dilation=N)
F.pixel_shuffle(c, N)|F.pixel_unshuffle(c, N)|F.lp_pool2d(c, 2, N)
F.max_unpool2d(c, i.expand(1, 2, 5, 5), 2, output_size=(N, N))|F.local_response_norm(c, N)
F.affine_grid(T.ones(1, 2, 3), (1, 1, N, N))|F.embedding(i, e[:, None])|F.embedding(i.expand(S), m)
F.layer_norm(x, (N,))|F.group_norm(c, N)|F.glu(e)|F.linear(e, m[:1, :1])|T.fft.fft(x, N)|T.fft.rfft(x, N)
T.fft.irfft(x, N)|T.fft.fft2(c, (N, N))|T.fft.fftfreq(N)|T.fft.rfftfreq(N)|T.fft.hfft(x, N)
T.stft(x, N, return_complex=True)|T.stft(x, 2, hop_length=N, return_complex=True)|T.special.zeta(x + 1, N)
T.linalg.matrix_power(T.eye(2), N)|T.empty(S).shape|T.zeros(0, S).shape|T.zeros(S, 0).shape|T.zeros(0, S).sum()
"""


def calls():
    return [text for line in KNOWN.strip().splitlines() for text in line.split("|")]


class Draw(random.Random):
    """Draws one call, as source text."""

    def number(self):
        kind = self.random()
        return self.choice(LARGE if kind < 0.6 else SMALL if kind < 0.9 else BEYOND)

    def sizes(self):
        return ", ".join(str(self.number()) for _ in range(self.choice((1, 1, 2, 2, 3))))

    def filled(self, text):
        """A known call with its numbers."""
        out, word = [], ""
        for sign in text + " ":
            if sign.isalnum() or sign in "_.":
                word += sign
                continue
            drawn = {"N": self.number, "S": self.sizes, "D": lambda: self.choice(DTYPES)}.get(word)
            out += [str(drawn()) if drawn else word, sign]
            word = ""
        return "".join(out).strip()

    def argument(self, name, kind):
        """An argument for a parameter of any function, by its name."""
        if name in ("input", "self", "other", "tensor", "weight", "mat2", "source", "values", "index", "indices"):
            return self.choice("xxxmmiuce" if name[:3] != "ind" else "iiix")
        if name in ("dim", "dim0", "dim1", "axis"):
            return self.choice(("0", "-1", "0", "1", str(self.number())))
        if name in ("dtype", "out", "generator", "device", "layout", "requires_grad", "pin_memory", "memory_format"):
            return None
        if kind is not None and (isinstance(kind, (str, bool)) or callable(kind)):
            return None
        numbers = (str(self.number()), f"({self.sizes()},)", f"[{self.number()}, {self.number()}]")
        return self.choice((*numbers[:1] * 3, *numbers, "x", "m", f"{self.choice(LARGE)}.0"))

    def of_the_table(self, functions):
        """A call of any function that both libraries have."""
        name, parameters = self.choice(functions)
        given = []
        for parameter in parameters:
            if parameter.kind is parameter.VAR_KEYWORD:
                continue
            required = parameter.default is parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL
            if not required and self.random() < 0.5:
                continue
            drawn = self.argument(parameter.name, None if required else parameter.default)
            if drawn is not None:
                keyword = parameter.kind is parameter.KEYWORD_ONLY or (given and "=" in given[-1]) or not required
                keyword = keyword and parameter.kind is not parameter.VAR_POSITIONAL
                given.append(f"{parameter.name}={drawn}" if keyword else drawn)
        return f"{name}({', '.join(given)})"


def table():
    """(name, parameters) of each function of the operator table."""
    import inspect

    from xgrad.dispatch.tables import FUNCTIONS, METHODS

    places = {"": "T.", "nn.functional": "F.", "linalg": "T.linalg.", "fft": "T.fft.", "special": "T.special."}
    found = []
    for place, prefix in places.items():
        found += [(prefix + name, function) for name, function in sorted(FUNCTIONS.get(place, {}).items())]
    found += [("T.Tensor." + name, function) for name, function in sorted(METHODS.items()) if name[0] != "_"]
    # They set something, or give no tensor that could be compared (result_type).
    skipped = (
        "seed",
        "Tensor.type",
        "set_",
        "load",
        "save",
        "compile",
        "printoptions",
        "default_dtype",
        "from_file",
        "result_type",
    )
    listed = []
    for name, function in found:
        if not any(word in name for word in skipped) and callable(function):
            listed.append((name, [*inspect.signature(function).parameters.values()]))
    return listed


# ---------------------------------------------------------------- in the process of its own

ABOUT_SIZES = ("overflow", "allocat", "bad_alloc", "out of memory", "larger than", "too large", "numel", "maximum size")
VIEWS = re.compile(r"\be\b|expand")
OF_PYTHON = (RuntimeError, ValueError, TypeError, IndexError, OverflowError, MemoryError, NotImplementedError)


def environment(T):
    """The tensors of which calls are made."""
    return {
        "T": T, "F": T.nn.functional, "x": T.arange(1.0, 5.0), "m": T.ones(2, 3), "i": T.tensor([0, 2]),
        "s": T.tensor(2.0), "u": T.zeros(0), "c": T.arange(50.0).reshape(1, 2, 5, 5), "e": T.ones(1).expand(2**61),
    }  # fmt: skip


def outcome(T, text):
    try:
        value = eval(text, environment(T))
        if T.__name__ == "xgrad":
            T.sync()  # in a lazy thread what fails for want of memory does so here
        return value, None
    except Exception as error:
        return None, error


def described(value):
    """The shapes of a result, and its values where they are few and no matter of chance."""
    if isinstance(value, (tuple, list)):
        return [len(value), *[described(v) for v in value[:3]]]
    shape = getattr(value, "shape", None)
    return value if shape is None and isinstance(value, (int, float, str)) else None if shape is None else list(shape)


def few(value):
    import numpy as np

    if getattr(value, "shape", None) is None or not hasattr(value, "detach") or not 0 < value.shape.numel() <= 64:
        return None
    return np.asarray(value.detach().resolve_conj().numpy(), dtype=complex)


def judged(text):
    """(kind, what was found) for one call."""
    import numpy as np
    import torch

    import xgrad

    ours, our_error = outcome(xgrad, text)
    print(json.dumps(["torch"]), flush=True)
    theirs, their_error = outcome(torch, text)
    if our_error is not None:
        told = f"{type(our_error).__name__}: {str(our_error)[:200]}"
        of_jax = type(our_error).__name__ == "JaxRuntimeError"
        told_by_torch = isinstance(their_error, (TypeError, AttributeError))
        if of_jax or not (isinstance(our_error, OF_PYTHON) or told_by_torch):
            return "failures", f"an error in no words for a user: {told}"
        words = str(our_error)
        if their_error is None and any(word in words for word in ("calculation overflowed", "can't allocate memory")):
            if VIEWS.search(text):  # read, an expanded view is an array here
                return "refused, as it expands a view", told
            if 0 in getattr(theirs, "shape", ()):  # XLA counts the bytes in front of the 0, too
                return "refused, though empty in the end", told
            return "failures", f"refused, but torch gives {described(theirs)}: {told}"
        return "refused", told
    if their_error is not None:
        about = str(their_error).lower()
        if isinstance(their_error, RuntimeError) and any(word in about for word in ABOUT_SIZES):
            return "failures", f"torch refuses it ({about[:200]}), here it gives {described(ours)}"
        return "without torch's verdict", ""
    # Chance, memory that is not initialized, and factorials that are infinite times sums that are 0.
    if not any(word in text for word in ("rand", "multinomial", "empty", "resize", "polygamma")):
        if described(theirs) != described(ours):
            return "failures", f"torch gives {described(theirs)}, here it gives {described(ours)}"
        one, other = few(theirs), few(ours)
        if one is not None and other is not None and not np.allclose(one, other, 1e-3, 1e-3, equal_nan=True):
            return "failures", f"torch gives {one.tolist()}, here it gives {other.tolist()}"
    return "as torch", ""


def drawn(seed, number, functions):
    draw = Draw(f"{seed} {number}")
    known = calls()
    return draw.filled(draw.choice(known)) if number % 3 else draw.of_the_table(functions)


def child():
    """Judge the calls that are asked for, and tell what was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--first", type=int, required=True)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    import torch

    torch.set_num_threads(1)
    functions = [f for f in table() if outcome(torch, f[0])[1] is None]
    judged("T.ones(3) + 1")
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + HEADROOM, resource.RLIM_INFINITY))
    number = options.first
    while True:
        text = drawn(options.seed, number, functions)
        print(json.dumps(["call", number, text]), flush=True)
        print(json.dumps(["found", *judged(text)]), flush=True)
        number += 1


class Process:
    """The process that runs calls, and the lines that it writes."""

    def __init__(self, seed, first):
        command = [sys.executable, "-m", "tests.property.sizes", "--seed", str(seed), "--first", str(first)]
        environ = {**os.environ, "JAX_ENABLE_X64": str((seed + 1) % 2), "JAX_PLATFORMS": "cpu"}
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by `end`
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.errors, text=True, env=environ)
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            if line.startswith("["):
                self.lines.put(json.loads(line))
        self.lines.put(None)

    def line(self, seconds):
        """The next line; None if the process died, or said nothing for so long."""
        try:
            return self.lines.get(timeout=seconds)
        except queue.Empty:
            return None

    def end(self):
        """How it ended, with the last that it said; it is ended if it runs."""
        code = self.process.poll()
        if code is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.errors.seek(0)
        said = [line for line in self.errors.read().splitlines() if line.strip()]
        self.errors.close()
        return "it does not return" if code is None else f"the process died ({code}): {said[:2]}"


def run(seconds, seed, most=None):
    """Draw calls for so long, or so many; gives counts, and under "failures" what was found.

    With an odd seed JAX's 64-bit mode is off.
    """
    counts, failures = Counter(), []
    first, began = 0, None
    while began is None or (time.monotonic() - began < seconds and (most is None or counts["calls"] < most)):
        process = Process(seed, first)
        text = "the start"
        try:
            asked = False
            while (line := process.line(PATIENCE if asked else SECONDS)) is not None:
                began = began or time.monotonic()  # importing both libraries is none of it
                asked = line[0] == "torch"
                if line[0] == "call":
                    _, number, text = line
                    first = number + 1
                    counts["calls"] += 1
                elif line[0] == "found":
                    counts[line[1]] += line[1] != "failures"
                    if line[1] == "failures":
                        failures.append(f"{text}\n    {line[2]}")
                    if time.monotonic() - began >= seconds or (most is not None and counts["calls"] >= most):
                        break
            else:
                if asked:  # torch did not return, or died
                    counts["without torch's verdict"] += 1
                    continue
                failures.append(f"{text}\n    {process.end()}")
                if text == "the start":
                    break
        finally:
            if not process.errors.closed:
                process.end()
    return {**counts, "failures": failures}


if __name__ == "__main__":
    child()
