"""Trains the demo in several processes, each with its part of the data: `python -m xgrad demo --hosts`.

Each process makes its own part of every batch, and all run the same steps on the tensors that these parts make up.
Parameters lie on each device; XLA adds their gradients up where the loss is differentiated.  The first process prints.

    --hosts 2                                        two processes on this machine, on its CPU
    --hosts 2 --host 0 --coordinator 10.0.0.1:1234   one of two machines; the other one says --host 1
    --hosts auto                                     the cluster's launcher numbers them: TPU, SLURM, Open MPI, ...
"""

import argparse
import os
import sys
import time
import traceback
from collections.abc import Callable
from statistics import median
from typing import Any

import jax
from jax.experimental import multihost_utils
from jax.sharding import PartitionSpec as P

import xgrad

from ..base.platforms import default_platform
from ..base.table import seconds
from .arguments import at_least
from .digits import BATCH, DRIFT, accuracy_of, new_parameters, parts, shortfall, update_of
from .launch import HostError, end_after, hold, launch

LIMIT = 900  # seconds
MEETING = 120  # seconds that a process waits for the others to start
HEARTBEAT = 30  # seconds after which a silent process counts as dead, and the others end


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("over several processes, data-parallel (no comparison, no picture)")
    group.add_argument(
        "--hosts",
        type=_hosts,
        metavar="N|auto",
        help="train over N processes: on this machine's CPU, or with --host and --coordinator this one of N; auto: as "
        "the cluster says (TPU slices, SLURM, Open MPI)",
    )
    group.add_argument("--host", type=at_least(0), metavar="I", help="the number of this process, from 0 to N - 1")
    group.add_argument("--coordinator", metavar="ADDRESS:PORT", help="where process 0 listens, the same for all")
    group.add_argument(
        "--limit", type=at_least(1), default=LIMIT, help=f"seconds after which all end (default: {LIMIT})"
    )
    group.add_argument("--held", action="store_true", help=argparse.SUPPRESS)  # started by `launch`: see `hold`


def _hosts(text: str) -> int | str:
    return text if text == "auto" else at_least(1)(text)


def run(arguments: argparse.Namespace) -> int:
    """Launch the processes, or be one of them; return 1 if a process fails or the training is wrong, else 0."""
    wrong = arguments.parser.error
    hosts, host, coordinator = arguments.hosts, arguments.host, arguments.coordinator
    if arguments.device is not None:
        wrong("argument --device: not together with --hosts, which takes all devices")
    if (host is None) != (coordinator is None):
        wrong("arguments --host and --coordinator belong together")
    if hosts == "auto" and host is not None:
        wrong("argument --host: not with --hosts auto, which finds it out")
    if hosts != "auto" and host is None:
        return _launched(arguments)
    if host is not None and host >= hosts:
        wrong(f"argument --host: {host} of {hosts} hosts; they are numbered from 0")
    try:
        with end_after(arguments.limit):
            _join(arguments)
            return train(arguments)
    except BaseException:
        # End at once: a process that ends in the usual way waits for the others, which wait for it.
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def _launched(arguments: argparse.Namespace) -> int:
    given = ["--hosts", arguments.hosts, "--epochs", arguments.epochs, "--path", arguments.path]
    given += ["--seed", arguments.seed, "--limit", arguments.limit, "--held"]
    if arguments.lazy:
        arguments.parser.error("argument --lazy: not with --hosts, whose tensors are spread over devices")
    given += ["--compiled"] if arguments.compiled else []

    def command(host: int, coordinator: str) -> list[str]:
        own = ["--host", host, "--coordinator", coordinator]
        return [sys.executable, "-m", "xgrad", "demo", *map(str, given + own)]

    try:
        launch(command, arguments.hosts, arguments.limit, {"JAX_PLATFORMS": "cpu"})
    except HostError as error:
        print(f"FAILED: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: all processes have ended", file=sys.stderr)
        return 130
    return 0


def _join(arguments: argparse.Namespace) -> None:
    """Join the other processes, before anything starts a backend."""
    times: Any = dict(initialization_timeout=MEETING, heartbeat_timeout_seconds=HEARTBEAT)
    if arguments.held:
        hold()
        _quiet()
    if arguments.hosts == "auto":
        jax.distributed.initialize(**times)
    else:
        where = (arguments.coordinator, arguments.hosts, arguments.host)
        jax.distributed.initialize(*where, cluster_detection_method="deactivate", **times)


def _quiet() -> None:
    """Discard what XLA's collectives print about their connections; Python's own output goes on as before."""
    sys.stdout.flush()
    sys.stdout = os.fdopen(os.dup(1), "w", buffering=1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


# ---------------------------------------------------------------- the training


def train(arguments: argparse.Namespace) -> int:
    """Train, and report in the first process; return 1 if the losses or the accuracy are wrong, else 0."""
    devices, hosts = jax.device_count(), jax.process_count()
    first = jax.process_index() == 0
    say: Callable[..., None] = print if first else lambda *what: None
    say(
        f"xgrad {xgrad.__version__} on {hosts} hosts with {devices} devices ({default_platform()}): "
        f"each makes {BATCH // devices * devices // hosts} of a batch's images"
    )
    data = parts(arguments.seed)
    with xgrad.mesh({"data": devices}):
        losses, parameters, spent = fit(arguments, data, P(), P("data"), arguments.epochs, first)
        test = {name: xgrad.tensor(data[name], device=P()) for name in ("test", "test_labels")}
        accuracy = accuracy_of(test, parameters)
    # Each device has a copy of the parameters, and the copies must still be equal.
    multihost_utils.assert_equal([p.detach().numpy() for p in parameters], "parameters differ between hosts")
    if not first:
        return 0
    per_epoch = len(losses) // arguments.epochs
    alone, *_ = fit(arguments, data, None, None, 1, False)
    drift = max(abs(a - b) / b for a, b in zip(losses, alone, strict=False))
    mean = sum(losses[-per_epoch:]) / per_epoch
    say(f"  first step, with what is compiled in it   {seconds(spent[0])}")
    say(f"  each step after it                        {seconds(median(spent[1:] or spent))}")
    say(f"  cross entropy, mean of the last epoch     {mean:.5f}")
    say(f"test accuracy: {accuracy:.1%}, {len(data['test_labels'])} images, after epoch {arguments.epochs}")
    say("parameters are equal on all hosts")
    say(f"largest difference of a step's loss, all hosts and one alone, first epoch: {drift:.1e} of it")
    if not drift <= DRIFT:
        say(f"FAILED: the losses differ by more than {DRIFT:g}")
        return 1
    if failure := shortfall(arguments.epochs, accuracy):
        say(failure)
        return 1
    return 0


def fit(
    arguments: argparse.Namespace, data: dict[str, Any], everywhere: Any, split: Any, epochs: int, bar: bool
) -> tuple[list[float], list[Any], list[float]]:
    """Run Adam over shuffled batches; return the losses, the parameters, and the seconds of each step.

    `everywhere` is the parameters' device, `split` the batches'; both are None for one process on one device.
    """
    import optax  # optional libraries, from here on
    from tqdm import tqdm

    from ..interop.optax import Optimizer

    xgrad.manual_seed(arguments.seed)  # the same parameters and the same order in each process
    parameters = new_parameters(xgrad.device("xla") if everywhere is None else everywhere)
    devices = jax.device_count()
    batch = BATCH // devices * devices
    share = slice(None)
    if split is not None:
        part = batch // jax.process_count()
        share = slice(jax.process_index() * part, (jax.process_index() + 1) * part)
    per_epoch = len(data["train"]) // batch
    schedule = optax.cosine_decay_schedule(5e-3, arguments.epochs * per_epoch)
    step = update_of(parameters, Optimizer(parameters, optax.adam(schedule)))
    step = xgrad.compile(step) if arguments.compiled else step
    losses, spent = [], []
    options: Any = dict(total=epochs * per_epoch - 1, ncols=90, disable=not bar, desc="compiling ...")
    with xgrad.views.tracking(arguments.path), tqdm(**options) as progress:  # of all steps but the first
        for _ in range(epochs):
            order = xgrad.randperm(len(data["train"])).numpy()
            for k in range(per_epoch):
                before = time.perf_counter()
                rows = order[k * batch : (k + 1) * batch][share]
                x, labels = (_batch(data[name][rows], split) for name in ("train", "train_labels"))
                losses.append(step(x, labels).item())
                spent.append(time.perf_counter() - before)
                if len(spent) > 1:
                    progress.update()
                else:
                    progress.set_description("training", refresh=False)
                    progress.reset()
    return losses, parameters, spent


def _batch(part: Any, split: Any) -> Any:
    return xgrad.tensor(part) if split is None else xgrad.distributed.from_local(part, split)
