"""Show that a change left XLA's programs as they were: the operator table, the views, and steps of training.

    python scripts/same_programs.py --out before.json        # in the checkout before, first on PYTHONPATH
    python scripts/same_programs.py --against before.json    # in the checkout after

Each program is lowered and not compiled; of its StableHLO, which has no lines of the source, a digest is kept.
`--text NAME` prints one program, to see what differs.  `--only` takes a part of a name.  It takes two minutes.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import xgrad
import xgrad.nn.functional as F
from xgrad.conformance import operators, views
from xgrad.conformance.cases import Case, fits, flat, read, samples_of
from xgrad.conformance.execution import Place
from xgrad.conformance.operator_rows import OperatorRow
from xgrad.conformance.operator_rows import operators as table
from xgrad.tensor import from_array

DTYPES = [np.dtype(name) for name in ("float32", "int32", "complex64")] + [np.dtype(jnp.bfloat16)]
Program = tuple[str, Callable[[], str]]  # its name, and what lowers it


def lowered(task: Callable[[list[Any]], dict[str, list[Any]]], arrays: list[np.ndarray]) -> str:
    """Return the StableHLO of a check of conformance, which is a function of tensors."""

    def program(*operands: Any) -> list[Any]:
        return [read(found) for found in task([from_array(x) for x in operands]).values()]

    return jax.jit(program).lower(*arrays).as_text()


def of_operators() -> Iterator[Program]:
    """All samples in float32, and the first one in other dtypes."""
    for name, op in table().items():
        for dtype in DTYPES:
            numbers = [number for number, sample in enumerate(samples_of(op)) if fits(op, sample, dtype)]
            for number in numbers if dtype == np.float32 else numbers[:1]:
                for check in ("forward", "gradient"):
                    yield f"operator {name} {number} {dtype}, {check}", partial(_of_case, op, number, dtype, check)


def _of_case(op: Any, number: int, dtype: np.dtype, check: str) -> str:
    case = Case(op, number, dtype)
    if check == "forward":
        return lowered(partial(operators.forward, case), case.arrays)
    if not case.records:
        return ""  # nothing has a gradient
    results = OperatorRow(op, Place("cpu"), frozenset())._shapes(case)
    cotangents = [np.ones(r.shape, r.dtype) for r in operators.with_gradient(case, results)]
    return lowered(partial(operators.gradient, case), [*case.arrays, *cotangents])


def of_views() -> Iterator[Program]:
    for name, entry in views.VIEWS.items():
        for dtype in DTYPES:
            if not views.fits(entry, dtype):
                continue
            base = views._numbers(entry.shape, dtype, 0)
            new, like = views._numbers(np.shape(entry.by_numpy(base)), entry.by_numpy(base).dtype, 1), base
            tasks = {"read": (views._read, [base]), "refreshed": (views._refreshed, [base, like])}
            if not entry.overlaps:
                tasks["written"] = (views._copied, [base, new])
            if dtype.kind == "f" or dtype.name == "bfloat16":
                tasks["gradient"] = (views._pulled, [base, new])
                if not entry.overlaps and not entry.exact:
                    tasks["scaled"] = (views._scaled, [base, new, like])
            for path in ("replay", "geometry"):
                for check, (function, arrays) in tasks.items():
                    task = partial(views._along, path, function, entry)
                    yield f"view {name} {dtype}, {check}, {path}", partial(lowered, task, arrays)


def of_steps() -> Iterator[Program]:
    """Steps of training, compiled and lazy: an MLP, convolutions, a transformer layer, writes through views."""
    models: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
        "mlp": (lambda: xgrad.nn.Sequential(xgrad.nn.Linear(8, 16), xgrad.nn.ReLU(), xgrad.nn.Linear(16, 4)), (4, 8)),
        "conv": (lambda: xgrad.nn.Sequential(xgrad.nn.Conv2d(3, 4, 3), xgrad.nn.BatchNorm2d(4)), (2, 3, 8, 8)),
        "layer": (lambda: xgrad.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), (2, 5, 8)),
        "lstm": (lambda: xgrad.nn.LSTM(4, 8, 2), (3, 2, 4)),
    }
    for name, (model, shape) in models.items():
        for optimizer in ("SGD", "AdamW"):
            for how in ("compiled", "lazy"):
                yield f"step {name} {optimizer}, {how}", partial(_of_step, model, shape, optimizer, how)
    for how in ("compiled", "lazy"):
        yield f"step writes, {how}", partial(_of_writes, how)


def _of_step(model: Callable[[], Any], shape: tuple[int, ...], optimizer: str, how: str) -> str:
    xgrad.manual_seed(0)
    net, x = model(), xgrad.ones(*shape)
    opt = getattr(xgrad.optim, optimizer)(net.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        opt.zero_grad()
        loss = F.mse_loss(flat(net(x))[0], xgrad.zeros(()).expand(flat(net(x))[0].shape))
        loss.backward()
        opt.step()
        return loss

    return _text(step, x, how)


def _of_writes(how: str) -> str:
    def step(x: Any) -> Any:
        y = x.clone().requires_grad_() * 1
        for i in range(4):
            y[i].mul_(y[i, :1])
        return xgrad.autograd.grad(y.sum(), y)[0] + y

    return _text(step, xgrad.ones(8, 6), how)


def _text(step: Callable, x: Any, how: str) -> str:
    if how == "compiled":
        return xgrad.compile(step).lower(x).as_text()
    with xgrad.lazy():
        step(x).tolist()
    return xgrad.lazy.as_text()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="the file that is written")
    parser.add_argument("--against", type=Path, help="the file that is compared with")
    parser.add_argument("--only", default="", help="a part of the programs' names")
    parser.add_argument("--text", help="the name of a program that is printed")
    asked = parser.parse_args()
    found: dict[str, str] = {}
    refused = 0
    for name, lower in (*of_operators(), *of_views(), *of_steps()):
        if asked.only not in name or (asked.text and asked.text != name):
            continue
        try:
            text = lower()
        except Exception as error:  # a refusal is kept too
            text, refused = f"{type(error).__name__}: {error}", refused + 1
        if not text:
            continue
        if asked.text:
            print(text)
        found[name] = hashlib.sha256(text.encode()).hexdigest()
    if asked.out:
        asked.out.write_text(json.dumps(found, indent=0))
    if not asked.against:
        print(f"{len(found)} programs, {refused} of them refused")
        return 0
    before = {name: digest for name, digest in json.loads(asked.against.read_text()).items() if asked.only in name}
    for word, names in (
        ("differs", [name for name in found if before.get(name, found[name]) != found[name]]),
        ("is new", [name for name in found if name not in before]),
        ("is gone", [name for name in before if name not in found]),
    ):
        print(*[f"{word}: {name}" for name in names], sep="\n", end="\n" * bool(names))
    same = sum(before.get(name) == digest for name, digest in found.items())
    print(f"{same} of {len(found)} programs are the same")
    return int(same < max(len(found), len(before)))


if __name__ == "__main__":
    sys.exit(main())
