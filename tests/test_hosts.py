"""Several processes: two on the loopback address with four fake devices each, against one with eight.

Run as a program, this file is one of those processes: `test_hosts.py WORK FOLDER HOST COORDINATOR`.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import xgrad
from xgrad.cli.launch import HostError, launch

LIMIT = 150  # seconds for processes that need about ten, on a machine that does other things too
STEPS, SAVED, KILLED = 6, 2, 3  # of the training; checkpoints after so many steps; the step in which a process dies


def environment(devices):
    ours = {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1", "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo"}
    flags = f"--xla_force_host_platform_device_count={devices}"
    return {**ours, "XLA_FLAGS": flags, "PYTHONPATH": str(Path(xgrad.__file__).parent.parent)}


def run(work, folder, hosts=2):
    """Run this file as so many processes; what each found."""

    def command(host, coordinator):
        return [sys.executable, __file__, work, str(folder), str(host), coordinator if hosts > 1 else "alone"]

    launch(command, hosts, LIMIT, environment(8 // hosts))
    return [json.loads((folder / f"{work}-{host}.json").read_text()) for host in range(hosts)]


# ---------------------------------------------------------------- training, killed and restarted


@pytest.mark.exhaustive
def test_killed_and_restarted_training_ends_as_an_unbroken_one(tmp_path):
    """A process dies in a step; both start again from the checkpoint, and end where one process ends that never died.

    Of a seed they draw the numbers of one process.
    """
    alone = {}
    unbroken = threading.Thread(target=lambda: alone.update(run("train", tmp_path / "alone", 1)[0]))
    for folder in ("alone", "hosts"):
        (tmp_path / folder).mkdir()
    unbroken.start()
    try:
        with pytest.raises(HostError, match="host 1 of 2 was ended by SIGKILL"):
            run("die", tmp_path / "hosts")
        first, second = run("train", tmp_path / "hosts")
    finally:
        unbroken.join(LIMIT)
    assert first["resumed"] == second["resumed"] == SAVED
    assert alone["resumed"] == 0
    np.testing.assert_allclose(first["losses"], alone["losses"][SAVED:], rtol=1e-10)
    for name, value in alone["parameters"].items():
        np.testing.assert_allclose(first["parameters"][name], value, rtol=1e-9, atol=1e-12, err_msg=name)
        assert second["parameters"][name] == first["parameters"][name]
    assert first["random"] == second["random"] == alone["random"]
    assert first["drawn"] == second["drawn"] == alone["drawn"]
    assert alone["losses"][-1] < alone["losses"][0]


def model_and_step():
    """A small network with states in a buffer, dropout, parameters on each device and spread over all; momentum."""
    from jax.sharding import PartitionSpec as P

    F = xgrad.nn.functional
    xgrad.manual_seed(5)
    rng = np.random.default_rng(0)
    kinds = {"w": (P("data"), (8, 6)), "b": (P(), (6,)), "v": (P(None, "data"), (6, 8)), "c": (P("data"), (8,))}
    parameters = {
        name: (xgrad.randn(*shape, dtype=xgrad.float64, device=where) * 0.5).requires_grad_()
        for name, (where, shape) in kinds.items()
    }
    momentum = {name: xgrad.zeros_like(p.detach()) for name, p in parameters.items()}

    def batch():
        """Of which each process makes its part."""
        x, y = rng.normal(size=(16, 8)), rng.normal(size=(16, 8))
        n, i = processes()
        part = slice(i * 16 // n, (i + 1) * 16 // n)
        return [xgrad.distributed.from_local(a[part], P("data")) for a in (x, y)]

    def step(x, y):
        for p in parameters.values():
            p.grad = None
        w, b, v, c = parameters.values()
        states = xgrad.zeros(16, 3, 6, dtype=x.dtype, device=P("data"))
        with xgrad.autograd.graph.allow_mutation_on_saved_tensors():
            states[:, 1].copy_(F.dropout(xgrad.tanh(x @ w + b), 0.25))
            states.transpose(0, 1)[2].add_(states[:, 1].sin())
            loss = (states[:, 2] @ v + c - y).square().mean()
            loss.backward()
        with xgrad.no_grad():
            for name, p in parameters.items():
                momentum[name].mul_(0.9).add_(p.grad)
                p.sub_(momentum[name], alpha=0.1)
        return loss.detach()

    return parameters, momentum, batch, step


def train(folder, dies=False):
    import warnings

    from xgrad.interop import orbax

    warnings.simplefilter("ignore")  # of gradients that are moved to where their parameters are
    parameters, momentum, batch, step = model_and_step()
    tree = {"parameters": parameters, "momentum": momentum, "random": xgrad.default_generator, "step": 0}
    losses = []
    with orbax.Manager(folder / "checkpoints", enable_async_checkpointing=False) as checkpoints:
        if checkpoints.all_steps():
            checkpoints.restore_into(tree)
        resumed = tree["step"]
        for k in range(STEPS):
            x, y = batch()  # those of steps that are done, too: the generator of the data moves on
            if k < resumed:
                continue
            if dies and k == KILLED and processes()[1] == 1:
                threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGKILL)).start()
                time.sleep(LIMIT)  # the others are in the step, and wait for this one
            losses.append(step(x, y).item())
            tree["step"] = k + 1
            if k + 1 == SAVED:
                checkpoints.save(k + 1, tree)
    whole = {name: xgrad.distributed.full_tensor(p.detach()).tolist() for name, p in parameters.items()}
    state = xgrad.get_rng_state().tolist()
    return {"resumed": resumed, "losses": losses, "parameters": whole, "random": state, "drawn": draw()}


# ---------------------------------------------------------------- what one process may and may not do


@pytest.mark.exhaustive
def test_what_is_not_in_this_process_is_told_and_all_else_works(tmp_path):
    found = run("look", tmp_path)
    assert found[0]["same"] == found[1]["same"]
    for host, seen in enumerate(found):
        same, own = seen["same"], seen["own"]
        for what in ("numpy()", "tolist()", "nonzero", "pickling a tensor", "__dlpack__()", "moving to"):
            assert f"{what}" in same[what]
            assert "not all in this process" in same[what]
            assert "full_tensor" in same[what]
        assert same["repr"] == "tensor(..., device='cpu:8 devices of 2 processes', size=(16, 3))"
        assert same["repr of the sum"] == "tensor(1128., device='cpu:8 devices of 2 processes')"
        assert same["large"].startswith("tensor([[0., 0., 0.],\n        [0.")
        assert same["full"] == np.arange(48).reshape(16, 3).tolist()
        assert same["gradient of full"] == [[3.0] * 3] * 16
        assert same["to the host"] == [1128.0, "cpu"]
        assert same["parts"] == [[4.0] * 4 + [7.0] * 4, "PlacementError"]
        assert "index 8 is out" in same["index"]
        assert "Call xgrad.manual_seed(seed)" in same["no seed"]
        assert "generator.manual_seed(seed)" in same["no seed of a generator"]
        assert same["compiled"][:3] == same["eager"]
        assert same["compiled"][3] == 1  # trace
        assert same["write"] == [[0.0, 5.0, 0.0], 5.0, True]
        assert "distributed client is closed" in seen["closed"]
        # Each process counts its own devices.
        assert own["devices"] == [f"cpu:{i}" if i else "cpu" for i in range(4)]
        assert own["default"] == ["cpu", host * 4]
        assert own["cpu:2"] == host * 4 + 2
        assert "JAX sees cpu:0, cpu:1, cpu:2, cpu:3 in this process" in own["cpu:4"]
        assert own["of the other"] == f"cpu:1 of process {1 - host}"
        assert own["on the other"] == f"tensor(..., device='cpu:1 of process {1 - host}', size=(2,))"


def look(folder):
    import pickle

    import jax
    from jax.sharding import PartitionSpec as P

    def error(f):
        try:
            return f"no error: {f()}"
        except Exception as e:
            return f"{type(e).__name__}: {e}"

    other = 1 - processes()[1]
    x = xgrad.distributed.from_local(np.arange(48.0).reshape(16, 3)[8 * processes()[1] :][:8], P("data"))
    total = x.sum()
    same = {
        "no seed": error(lambda: xgrad.rand(2)),
        "no seed of a generator": error(lambda: xgrad.rand(2, generator=xgrad.Generator())),
        "numpy()": error(x.numpy),
        "tolist()": error(x.tolist),
        "nonzero": error(x.nonzero),
        "pickling a tensor": error(lambda: pickle.dumps(x)),
        "__dlpack__()": error(x.__dlpack__),
        "moving to": error(x.cpu),
        "repr": repr(x.float()),
        "repr of the sum": repr(total.float()),
        "large": repr(xgrad.zeros(800, 3, device=P())),
        "full": xgrad.distributed.full_tensor(x).tolist(),
        "to the host": [total.cpu().item(), str(total.cpu().device)],
        "index": error(lambda: x[:8][xgrad.tensor([8], device=P())]),
    }
    leaf = x.detach().requires_grad_()
    (xgrad.distributed.full_tensor(leaf) * 3).sum().backward()
    same["gradient of full"] = xgrad.distributed.full_tensor(leaf.grad).tolist()
    part = xgrad.distributed.from_local(np.full(4, [4.0, 7.0][processes()[1]]), P("data"))
    wrong = error(lambda: xgrad.distributed.from_local(np.ones(3), P("data")))
    same["parts"] = [xgrad.distributed.full_tensor(part).tolist(), wrong.split(":")[0]]
    y = xgrad.zeros(16, 3, device=P("data"))
    y[9, 1].add_(5.0)
    same["write"] = [y[9].tolist(), y.sum().item(), y.sharding.is_equivalent_to(x.sharding, 2)]

    def decay(w):
        w.grad = None
        (x @ w).square().mean().backward()
        with xgrad.no_grad():
            w.sub_(w.grad, alpha=1e-3)
        return w.detach().sum()

    for name in ("eager", "compiled"):
        w = xgrad.ones(3, dtype=xgrad.float64, device=P()).requires_grad_()
        step = xgrad.compile(lambda w=w: decay(w)) if name == "compiled" else lambda w=w: decay(w)
        same[name] = [round(step().item(), 12) for _ in range(3)]
        same[name] += [step.metrics().traces] if name == "compiled" else []

    def number(place):  # of a device among all
        return jax.devices().index(next(iter(xgrad.ones(1, device=place)._read().devices())))

    there = jax.local_devices(process_index=other)[1]
    own = {
        "devices": [str(d) for d in xgrad.devices()],
        "default": [str(xgrad.ones(1).device), number(None)],
        "cpu:2": number("cpu:2"),
        "cpu:4": error(lambda: xgrad.ones(2, device="cpu:4")),
        "of the other": str(xgrad.device(there)),
        "on the other": repr(xgrad.ones(2, device=there)),
    }
    with xgrad.mesh({"few": 4}, devices=jax.devices()[::2]):  # between which there was no connection yet
        few = xgrad.ones(8, device=P("few"))
    jax.distributed.shutdown()
    closed = error(lambda: few.sum().item())
    return {"same": same, "own": own, "closed": closed}


def draw():
    """Random numbers, wherever they are put, and in a compiled step."""
    from jax.sharding import PartitionSpec as P

    xgrad.manual_seed(7)
    step, ones = xgrad.compile(lambda x: x * xgrad.rand(16)), xgrad.ones(16, device=P("data"))
    drawn = [
        xgrad.randn(16, device=P("data")), xgrad.rand(4), xgrad.randperm(8, device=P()), step(ones), xgrad.rand(4),
        ones.clone().uniform_(), step(ones),
    ]  # fmt: skip
    return [xgrad.distributed.full_tensor(x).tolist() for x in drawn]


def processes():
    """How many there are, and the number of this one."""
    import jax

    return jax.process_count(), jax.process_index()


def main(work, folder, host, coordinator):
    import jax

    from xgrad.cli.launch import end_after, hold

    hold()
    with end_after(LIMIT):
        if coordinator != "alone":
            jax.distributed.initialize(
                coordinator, 2, int(host), cluster_detection_method="deactivate", initialization_timeout=60
            )
        works = {"train": train, "die": lambda folder: train(folder, True), "look": look}
        with xgrad.mesh({"data": 8}):
            found = works[work](Path(folder))
        (Path(folder) / f"{work}-{host}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # a process that ends as usual waits for the other one
