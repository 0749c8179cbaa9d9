"""When a write reaches other views: at once, when somebody reads, in new memory.  Values are the same."""

import threading

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import xgrad
from xgrad.errors import OutOfMemoryError

POLICIES = ("write_through", "regenerate", "copy_on_write")
VALUES = np.linspace(-1.5, 1.5, 24).reshape(4, 6)

VIEWS = {
    "select": lambda x: x[1],
    "narrow": lambda x: x.narrow(1, 1, 3),
    "steps": lambda x: x[::2, 1::2],
    "transpose": lambda x: x.t(),
    "permute": lambda x: x.view(2, 2, 6).permute(2, 0, 1),
    "diagonal": lambda x: x.diagonal(1),
    "reshape": lambda x: x.view(-1)[3:9],
    "chain": lambda x: x.t()[1:5].unsqueeze(0).transpose(1, 2)[0, 2],
    "as_strided": lambda x: x.as_strided((2, 3), (6, 2), 1),
    "unfold": lambda x: x.unfold(1, 2, 3),
    "squeeze": lambda x: x[2:3].squeeze(0),
    "root": lambda x: x.view(4, 6),
}
WRITES = {
    "add_": lambda v, x: v.add_(0.5),
    "mul_": lambda v, x: v.mul_(v.detach().cos()),
    "copy_": lambda v, x: v.copy_(x.sum()),
    "fill_": lambda v, x: v.fill_(0.25),
    "sub_": lambda v, x: v.sub_(x[3, 5]),
    "zero_": lambda v, x: v.zero_(),
    "setitem": lambda v, x: v.__setitem__(0, x[0, 0] * 3),
    "masked_fill_": lambda v, x: v.masked_fill_(v.detach() > 0.3, 0.1),
}
SAVING = {  # backward needs the value that they read or write, so nothing may be written after them
    "tanh_": lambda v, x: v.tanh_(),
    "clamp_": lambda v, x: v.clamp_(-0.5, 0.7),
    "addcmul_": lambda v, x: v.addcmul_(v.detach(), v.detach(), value=0.5),
    "pow_": lambda v, x: v.pow_(2),
}


def written(x, make, writes):
    """Write through a view in these ways, reading now the view, now an equal one, the base, another view, or none."""
    base = x.clone()
    view, other = make(base), base.t()[2]
    found = []
    for number, write in enumerate(writes):
        write(view, x)
        if number % 4 == 1:
            found.append(view + 1)
        elif number % 4 == 2:
            found += [make(base) * 2, other + 1]
        elif number % 4 == 3:
            found.append(base.sum())
            other.mul_(1.5)
    return [base, view, other, *found]


def outcome(lib, x, make, writes):
    """Values, gradient and versions."""
    values = written(x, make, writes)
    versions = [v._version for v in values[:3]]
    if values[0].requires_grad:
        loss = sum((v.float() * v.float()).sum() for v in values)
        values += lib.autograd.grad(loss, x)
    return [v.detach().float().cpu().numpy() for v in values], versions


def on(lib, dtype, **where):
    return lib.tensor(VALUES, dtype=getattr(lib, dtype), requires_grad=True, **where)


def close(found, expected, dtype="float32"):
    rtol = 2e-5 if dtype == "float32" else 0.03
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * max(1, np.abs(b).max()))  # sums may cancel


@pytest.mark.one_in(3)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("execution", ["eager", "lazy"])
@pytest.mark.parametrize("make", VIEWS.values(), ids=VIEWS)
def test_values_gradients_and_versions_are_torchs(make, execution, dtype):
    recorded, unrecorded = [*WRITES.values()], [*SAVING.values(), *WRITES.values(), *SAVING.values()]
    for writes, grad in ((recorded, True), (unrecorded, False)):
        with torch.set_grad_enabled(grad), xgrad.set_grad_enabled(grad):
            expected, versions = outcome(torch, on(torch, dtype), make, writes)
            through = None
            for aliasing in POLICIES:
                chip = xgrad.Backend("chip", aliasing=aliasing, execution=execution)
                found, ours = outcome(xgrad, on(xgrad, dtype, device=chip), make, writes)
                assert ours == versions
                close(found, expected, dtype)
                through = through or found
                if execution == "eager":  # a program of several operators may round otherwise
                    assert all(map(np.array_equal, found, through))


@pytest.mark.parametrize("aliasing", POLICIES)
@pytest.mark.parametrize("name", ["select", "diagonal", "chain"])
def test_compiled_steps_have_the_same_values(aliasing, name):
    chip = xgrad.Backend("chip", aliasing=aliasing)
    expected, _ = outcome(torch, on(torch, "float32"), VIEWS[name], WRITES.values())
    step = xgrad.compile(lambda x: outcome_of_step(x, VIEWS[name]))
    x = on(xgrad, "float32", device=chip)
    for _ in range(2):
        close([v.detach().cpu().numpy() for v in step(x)], expected)


def outcome_of_step(x, make):
    values = written(x, make, WRITES.values())
    return [*values, *xgrad.autograd.grad(sum((v * v).sum() for v in values), x)]


def counted(chip, work):
    with chip.report() as report:
        work()
    return report


@pytest.mark.eager("launches")
def test_writes_wait_until_somebody_reads_and_are_one_launch():
    chip = xgrad.Backend("chip", aliasing="regenerate")
    x = xgrad.zeros(8, 3, device=chip)
    rows = [xgrad.full((3,), float(i), device=chip) for i in range(8)]

    def write():
        for i, row in enumerate(rows):
            x[i] = row
        return report.launches

    with chip.report() as report:
        assert write() == 0
        assert x[2].tolist() == [2] * 3
        assert (report.launches, write()) == (2, 2)  # all that waited, and the view
        assert x.sum().item() == 84
        assert report.launches == 4
    assert report.as_dict()["views"]["written back"]["count"] == 16
    assert counted(chip, lambda: x[0].add_(1)).launches == 3  # read, add; the report's end applies what waits


@pytest.mark.eager("launches")
def test_a_view_that_was_written_is_its_new_value():
    chip = xgrad.Backend("chip", aliasing="regenerate")
    x = xgrad.zeros(8, 3, device=chip)
    view = x.t()[1]
    with chip.report() as report:
        for _ in range(4):
            view.add_(1)
        assert report.launches == 5  # one reading
        assert x.t()[1].tolist() == view.tolist() == [4] * 8
        assert report.launches == 5
        assert x[0].tolist() == [0, 4, 0]
        assert report.launches == 7
        x.mul_(2)
        assert view.tolist() == [8] * 8
    assert report.as_dict()["views"]["refreshed"]["count"] == 1


def test_what_waits_is_read_by_another_thread_and_written_there():
    chip = xgrad.Backend("chip", aliasing="regenerate")
    x = xgrad.zeros(4, 3, device=chip)
    view, found = x[1], []

    def other():
        found.append(x.sum().item())
        view.add_(1)
        x[2] = 5

    view.fill_(2)
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert (found, view.tolist(), x.sum().item()) == ([6], [3] * 3, 24)


@pytest.mark.eager("launches")
def test_a_write_copies_while_other_tensors_share_the_storage():
    chip = xgrad.Backend("chip", aliasing="copy_on_write")
    x = xgrad.zeros(64, 64, device=chip)

    def copies(work):
        return counted(chip, work).as_dict()["copies of shared storages"]

    none, one = {"count": 0, "bytes": 0}, {"count": 1, "bytes": 64 * 64 * 4}
    assert copies(lambda: x.add_(1)) == none
    others = [x.view(-1)]
    assert copies(lambda: x.add_(1)) == copies(lambda: others[0].add_(1)) == copies(lambda: x[0].add_(1)) == one
    del others[0]
    assert copies(lambda: x.add_(1)) == none
    others.append(x.detach())
    assert copies(lambda: others[0].add_(1)) == one
    del others[0]
    held = x._read()  # by more than its tensor: under each policy it is not written in place
    assert copies(lambda: x.add_(1)) == none
    assert (held.sum().item(), x.sum().item()) == (64 * 64 * 5 + 64, 64 * 64 * 6 + 64)


@pytest.mark.eager("launches")
@pytest.mark.parametrize("aliasing", POLICIES)
def test_a_copy_needs_memory_of_its_own(aliasing):
    size = 64 * 64 * 4
    chip = xgrad.Backend("chip", aliasing=aliasing, memory=size + size // 2)
    x = xgrad.zeros(64, 64, device=chip)
    view = x[3]
    if aliasing == "copy_on_write":
        with pytest.raises(OutOfMemoryError, match="out of memory"):
            view.add_(1)
    else:
        view.add_(1)
    assert x[3].sum().item() == (0 if aliasing == "copy_on_write" else 64)
    del view
    x.add_(1)
    assert x[2].sum().item() == 64


def test_an_aliasing_that_there_is_not():
    with pytest.raises(ValueError, match="aliasing is one of 'write_through', 'regenerate', 'copy_on_write', not 'no'"):
        xgrad.Backend("chip", aliasing="no")


def rows(x):
    y = x.clone()
    for i in range(4):
        y[i].mul_(x[0])
        y.t()[1].add_(1)
    return y * 2


@pytest.mark.eager("launches")
def test_policies_are_compared_beside_replay_and_geometry():
    chip = xgrad.Backend("chip", cost=xgrad.Cost())
    changes = [{"aliasing": "regenerate"}, {"aliasing": "copy_on_write"}, {"strides": True}]
    x = xgrad.tensor(VALUES, dtype=xgrad.float32, requires_grad=True)
    found = xgrad.compare(rows, x, backends=[chip, *[chip.replace(**change) for change in changes]], repeats=1)
    assert list(found.runs) == [
        "chip",
        "chip, aliasing=regenerate",
        "chip, aliasing=copy_on_write",
        "chip, strides=True",
    ]
    assert found.within_rounding
    told = [run["report"] for run in found.as_dict().values()]
    through, _, copied, _ = [run["bytes accessed"] for run in told]
    assert copied == through + 2 * told[2]["copies of shared storages"]["bytes"]
    assert told[2]["copies of shared storages"]["count"] == 8
    assert told[1]["launches"] > told[0]["launches"] == told[2]["launches"]
    assert "bytes accessed" in str(found)
    assert "copies of shared storages" in str(found)


@pytest.mark.parametrize("aliasing", POLICIES[1:])
def test_the_laws_of_views_hold(aliasing):
    swap = xgrad.ViewRule(
        read=lambda root, a, b: jnp.swapaxes(root, a, b), write=lambda root, new, a, b: jnp.swapaxes(new, a, b)
    )
    chip = xgrad.Backend("chip", aliasing=aliasing, views={"transpose": swap})
    report = xgrad.conformance.run(chip, operators="transpose", dtypes=["float32"])
    assert report.rows
    assert all(check.state == "right" for row in report.rows for cell in row.cells.values() for check in cell.checks)
