"""Backends, comparisons and conform with the real compiler of TPUs; elsewhere conftest.py leaves this out."""

import xgrad


def test_a_report_has_the_chips_time_and_bytes():
    v5e = xgrad.Backend("v5e", target="tpu:v5e")
    with v5e.report() as report:
        x = xgrad.ones(128, 128, device=v5e)
        (x @ x).sum()
    assert report.on_target().failures == []
    assert 1e-8 < report.estimate().chip < 1e-3
    assert report.on_target().bytes_accessed > 4 * 128 * 128 * 4


def test_both_paths_have_cycles():
    def written(x):
        x = x.clone()
        x[2:5].mul_(2)
        return x.sum()

    found = xgrad.compare(written, xgrad.ones(128, 128).requires_grad_(), target="tpu:v5e", timing=False)
    for path in ("replay", "geometry"):
        assert found.as_dict()[path]["on the chip"]["cycles"] > 100
        assert found.as_dict()[path]["on the chip"]["estimated seconds"] > 0


def test_a_lazy_program_that_reads_a_part_does_not_move_the_whole():
    """XLA:TPU fetches the root, 33.5 MB, as a whole for the next program if it may: 141 MB for a column."""
    cache = xgrad.ones(8, 8, 2048, 64)
    with xgrad.lazy():
        (cache[:, :, 17] * 2).tolist()
    report = xgrad.lazy.compiled_for("tpu:v5e")
    line = test_a_lazy_program_that_reads_a_part_does_not_move_the_whole.__code__.co_firstlineno + 4
    assert report.answer.bytes_accessed < 7e6
    assert report.parts[0].line == f"test_libtpu_uses.py:{line}"
    v5e = xgrad.Backend("v5e", target="tpu:v5e")
    with v5e.report() as found:
        xgrad.ones(8, 8, 2048, 64, device=v5e)[:, :, 17].tolist()
    assert 0 < found.on_target().bytes_accessed < 45e6  # ones and a column


def test_conform_tells_what_compiles_gathers_and_ends_the_compiler():
    report = xgrad.conformance.run(operators="tanh,gather", dtypes=["float32", "complex128"], compile_for="tpu:v5e")
    found = {row.name: {dtype: cell.state for dtype, cell in row.cells.items()} for row in report.rows}
    assert found["tanh"]["float32"] == "compiles"
    assert found["gather"]["float32"] == "gathers"
    assert found["tanh"]["complex128"] in ("ends the compiler", "refused")


def _written(x, y):
    """Sixteen writes through views into 4 MB, and the gradients."""
    base = x.clone()
    for i in range(16):
        base[i * 62_500 : i * 62_500 + 16].mul_(y)
    return xgrad.autograd.grad(base.sum(), [x, y])


def test_writes_through_views_and_their_backward_copy_nothing():
    """A read before a write that XLA fuses into what runs after it costs a copy of the whole: 280 MB for these."""
    x, y = xgrad.ones(1_000_000).requires_grad_(), xgrad.ones(16).requires_grad_()
    compiled = xgrad.compile(_written).compiled_for("tpu:v5e", x, y)
    with xgrad.lazy():
        [g.tolist() for g in _written(x, y)[1:]]
    for report in (compiled, xgrad.lazy.compiled_for("tpu:v5e")):
        found = report.as_dict()
        assert found["cost"]["bytes accessed"] < 50e6
        assert found["memory"]["temp"] < 1e6
