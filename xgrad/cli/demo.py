"""`python -m xgrad demo`: train a classifier of handwritten digits whose states are written in place, through views.

The classifier is recurrent, with all states in one buffer; the rows of each 8x8 image are the sequence.  Then the same
gradients are computed along both tracking paths, replay and geometry, and compared.  Ends with the test accuracy, the
largest difference, tables and a picture.  With --lazy and with --compiled the same training runs once more, each step
in a lazy block, or as one XLA program.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import jax

import xgrad

from ..base.limits import x64_for_now
from ..base.table import seconds
from . import hosts
from .arguments import at_least, needs, place
from .digits import BATCH, DRIFT, EPOCHS, accuracy_of, loss_of, new_parameters, parts, shortfall, update_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", type=place, default=None, help="cpu, gpu:N, tpu:N or xla (default: JAX's default)")
    parser.add_argument(
        "--epochs", type=at_least(1), default=EPOCHS, help=f"passes over the training set (default: {EPOCHS})"
    )
    parser.add_argument(
        "--path",
        choices=["replay", "geometry"],
        default="replay",
        help="the path that training takes (default: replay)",
    )
    parser.add_argument(
        "--compiled", action="store_true", help="train once more, with each step as one program (xgrad.compile)"
    )
    parser.add_argument(
        "--lazy", action="store_true", help="train once more, with each step in a lazy block (xgrad.lazy)"
    )
    parser.add_argument("--seed", type=at_least(0), default=0, help="of parameters and order (default: 0)")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture (default: out)")
    hosts.add_arguments(parser)


# ---------------------------------------------------------------- the command


def run(arguments: argparse.Namespace) -> int:
    """Train, compare, draw; return 1 if paths or trainings disagree or a full training misses its accuracy, else 0."""
    started = time.perf_counter()
    if arguments.hosts is not None:
        needs(arguments.parser, "demo", "optax", "sklearn", "tqdm")
        return hosts.run(arguments)
    out: Path = arguments.out
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        arguments.parser.error(f"argument --out: {out} cannot be a folder: {error.strerror}")
    needs(arguments.parser, "demo", "matplotlib", "optax", "sklearn", "tqdm")
    device = arguments.device or xgrad.devices()[0]
    print(f"xgrad {xgrad.__version__} on {device}: a recurrent classifier, states written in place through views")

    data = load(device, arguments.seed)
    trainings, parameters = {}, []
    others = [name for name in ("lazy", "compiled") if getattr(arguments, name)]
    for name in ("eager", *others):
        xgrad.manual_seed(arguments.seed)  # the same parameters, the same order
        parameters = new_parameters(device)
        trainings[name] = train(data, parameters, arguments, name)

    print("both paths: compiling ...", file=sys.stderr)
    comparison, exact = compare_paths(data, parameters)
    epochs = f"{arguments.epochs} epoch{'s' if arguments.epochs > 1 else ''} along the {arguments.path} path"
    print()
    print(comparison)
    print()
    print(*table(trainings, epochs), sep="\n")
    print()
    accuracy = min(training.accuracy for training in trainings.values())
    print(f"test accuracy: {accuracy:.1%}, {len(data['test_labels'])} images, after {epochs}")
    for name in others:
        print(f"largest difference of a step's loss, eager and {name}: {drift(trainings, name):.1e} of it")
    print(f"largest difference of the two paths, outputs and gradients: {comparison.max_difference:.3g} in float32")
    if exact is not None:
        print(f"                                                            {exact.max_difference:.3g} in float64")
    picture = draw(trainings, comparison, arguments)
    print(f"picture: {picture}")
    print(f"all in all: {time.perf_counter() - started:.0f} s")
    if not comparison.within_rounding or (exact is not None and not exact.within_rounding):
        print("FAILED: the two paths disagree")
        return 1
    for name in others:
        if not drift(trainings, name, trainings["eager"].per_epoch) <= DRIFT:
            print(f"FAILED: eager and {name}, losses of the first epoch differ by more than {DRIFT:g}")
            return 1
    if failure := shortfall(arguments.epochs, accuracy):
        print(failure)
        return 1
    return 0


def load(device: Any, seed: int) -> dict[str, Any]:
    """Return `parts(seed)` as tensors on the device."""
    return {name: xgrad.as_tensor(part).to(device) for name, part in parts(seed).items()}


class Training(NamedTuple):
    """The results of a training, and seconds: the first step's, each later step's (the median epoch's), all."""

    losses: list[float]  # of each step
    per_epoch: int  # steps
    accuracy: float  # on the test images
    first: float
    each: float
    all: float

    @property
    def means(self) -> list[float]:
        """Return the mean loss of each epoch."""
        n = self.per_epoch
        return [sum(self.losses[i : i + n]) / n for i in range(0, len(self.losses), n)]


def step_of(data: dict[str, Any], parameters: list[Any], optimizer: Any) -> Callable[..., Any]:
    """Return a training step: a function of a batch's indices that returns the loss."""
    x, labels = data["train"], data["train_labels"]
    update = update_of(parameters, optimizer)

    def step(batch: Any) -> Any:
        return update(x[batch], labels[batch])

    return step


def train(data: dict[str, Any], parameters: list[Any], arguments: argparse.Namespace, way: str) -> Training:
    """Run Adam over shuffled batches, "eager", "lazy" or "compiled".

    Compiled, forward, backward, Adam and the in-place updates are one program.
    """
    import optax  # optional libraries, from here on
    from tqdm import tqdm

    from ..interop.optax import Optimizer

    x = data["train"]
    per_epoch = len(x) // BATCH  # the images left over wait for the next epoch: one shape, one compilation
    steps = arguments.epochs * per_epoch
    optimizer = Optimizer(parameters, optax.adam(optax.cosine_decay_schedule(5e-3, steps)))
    step = step_of(data, parameters, optimizer)
    step = {"eager": step, "lazy": xgrad.lazy()(step), "compiled": xgrad.compile(step)}[way]

    losses, first, spent = [], 0.0, []
    started = time.perf_counter()
    compiling = f"{way}: compiling ..."  # the first step, which the bar leaves out: it would estimate hours
    with xgrad.views.tracking(arguments.path), tqdm(total=steps - 1, unit="step", ncols=90, desc=compiling) as bar:
        for epoch in range(arguments.epochs):
            before = time.perf_counter()
            order = xgrad.randperm(len(x)).to(x.device)
            for k in range(per_epoch):
                # A copy: each view has its own place in `order`, so each would compile a program of its own.
                batch = order[k * BATCH : (k + 1) * BATCH].clone()
                loss = step(batch)
                losses.append(loss)
                if len(losses) > 1:
                    bar.update()
                    continue
                loss.item()  # devices run ahead
                before = time.perf_counter()
                first = before - started
                bar.set_description(way, refresh=False)
                bar.reset()
            bar.set_postfix(epoch=epoch + 1, loss=f"{losses[-1].item():.4f}")
            spent.append((time.perf_counter() - before) / (per_epoch if epoch else per_epoch - 1))
    total = time.perf_counter() - started
    accuracy = accuracy_of(data, parameters)
    return Training([loss.item() for loss in losses], per_epoch, accuracy, first, median(spent), total)


def table(trainings: dict[str, Training], epochs: str) -> Iterator[str]:
    """Yield the lines of a table of the trainings, side by side."""

    def line(label: str, cell: Callable[[str, Training], str]) -> str:
        return f"{label:42}" + "".join(f"{cell(*item):>13}" for item in trainings.items())

    yield line(f"training, {epochs}", lambda name, _: name)
    yield line("  first step, with what is compiled in it", lambda _, t: seconds(t.first))
    yield line("  each step after it", lambda _, t: seconds(t.each))
    yield line("  all steps", lambda _, t: seconds(t.all))
    yield line("  cross entropy, mean of the last epoch", lambda _, t: f"{t.means[-1]:.5f}")
    yield line("  test accuracy", lambda _, t: f"{t.accuracy:.1%}")


def drift(trainings: dict[str, Training], name: str, steps: int | None = None) -> float:
    """Return the largest relative difference from eager losses in the first `steps` steps; None: all."""
    eager, other = (trainings[way].losses[:steps] for way in ("eager", name))
    return max(abs(e - o) / e for e, o in zip(eager, other, strict=True))


def compare_paths(data: dict[str, Any], parameters: list[Any]) -> tuple[Any, Any]:
    """Compare the loss and its gradients under both paths; return the comparisons in float32 and float64.

    The second one is None if the device has no float64.
    """

    def demo(w_in: Any, w_state: Any, bias: Any, w_out: Any, b_out: Any) -> Any:
        return loss_of(
            data["train"][:BATCH].to(w_in.dtype), data["train_labels"][:BATCH], w_in, w_state, bias, w_out, b_out
        )

    with xgrad.autograd.graph.allow_mutation_on_saved_tensors():
        comparison = xgrad.compare(demo, *parameters)
        with x64_for_now():
            doubles = [p.detach().to(xgrad.float64).requires_grad_() for p in parameters]
            try:
                exact = xgrad.compare(demo, *doubles, programs=False, timing=False)
            except jax.errors.JaxRuntimeError:  # an accelerator without float64
                exact = None
    return comparison, exact


def draw(trainings: dict[str, Training], comparison: Any, arguments: argparse.Namespace) -> Path:
    """Draw the loss over the steps, and the comparison as bars, into one PNG; return its path."""
    import matplotlib as mpl  # an optional library

    mpl.use("agg")
    import matplotlib.pyplot as plt  # behind the choice of a backend

    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 5.6), layout="constrained", width_ratios=(1, 1.1))
    eager = trainings["eager"]
    left.plot(range(1, len(eager.losses) + 1), eager.losses, color="#8b949e", linewidth=0.8, label="each step")
    middles = [eager.per_epoch * (i + 0.5) for i in range(arguments.epochs)]
    marker = "o" if len(middles) == 1 else None
    left.plot(middles, eager.means, color="#1f6feb", linewidth=2, marker=marker, label="mean of an epoch")
    for name, color in (("lazy", "#2f9e44"), ("compiled", "#e8590c")):
        if name in trainings:
            style = dict(color=color, linewidth=2, linestyle=(0, (2, 2)), marker=marker and "x")
            left.plot(middles, trainings[name].means, **style, label=f"the same, {name}")
    left.set_yscale("log")
    left.set_xlabel("step")
    left.set_ylabel("cross entropy")
    left.set_title(
        f"digits, rows as a sequence: test accuracy {eager.accuracy:.1%}\ntrained on the {arguments.path} path",
        fontsize=10.5,
        loc="left",
    )
    left.spines[["top", "right"]].set_visible(False)
    left.grid(alpha=0.25, which="both", linewidth=0.5)
    left.legend(frameon=False, fontsize=9)
    comparison.plot(right)
    path = arguments.out / "demo.png"
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path
