"""compare on a chip that is not here: both tracking paths beside the CPU's, and backends with targets."""

import pytest

import xgrad
from xgrad.chips import Answer, targets
from xgrad.cli import main

X = xgrad.ones(8, 8).requires_grad_()


def doubled_rows(x):
    x = x.clone()
    x[2:5].mul_(2)
    return x.t().sum()


@pytest.fixture
def found(compiler):
    return xgrad.compare(doubled_rows, X, target="tpu:v5e", timing=False)


def test_both_paths_have_the_chips_figures(found):
    assert found.equal
    for path in ("replay", "geometry"):
        report = found.paths[path]
        assert report.on_chip.state == "compiles"
        assert report.on_chip.memory["argument"] >= 256
        # The stand-in compiles for the CPU.
        assert report.on_chip.bytes_accessed == report.whole.bytes_accessed
        assert report.views_on_chip.bytes_accessed == report.views.bytes_accessed
        told = found.as_dict()[path]
        assert told["on the chip"]["bytes_accessed"] == told["program"]["bytes_accessed"]
        assert [view["state"] for view in told["views on the chip"]] == ["compiles"] * len(report.programs)


def test_it_is_shown_as_text_html_and_programs(found):
    text = str(found)
    assert "one program on tpu:v5e:1x1" in text
    assert "programs of views on tpu:v5e:1x1" in text
    assert "estimated cycles" in found._repr_html_()
    headings = [line for line in found.as_text().splitlines() if line.startswith("//")]
    assert headings == [f"// {p}, on {w}" for p in ("replay", "geometry") for w in ("the CPU", "tpu:v5e:1x1")]
    assert found.as_text().count("HloModule") == 4


def test_it_is_drawn(found):
    pytest.importorskip("matplotlib").use("agg")
    labels = [label.get_text() for label in found.plot().get_yticklabels()]
    assert "tpu:v5e:1x1:\nbytes accessed" in labels


def test_a_program_that_does_not_compile_is_told(compiler, monkeypatch):
    answer = Answer("tpu:v2:1x1", "ends the compiler", "Check failed")
    monkeypatch.setattr(targets.Target, "ask", lambda *args, **options: answer)
    found = xgrad.compare(doubled_rows, X, target="tpu:v2", timing=False)
    assert found.as_dict()["replay"]["on the chip"]["state"] == "ends the compiler"
    assert "Check failed" in found.as_text()
    assert "ends the compiler" in str(found)


def test_without_a_target_nothing_is_asked(monkeypatch):
    monkeypatch.setattr(targets.Target, "ask", None)
    found = xgrad.compare(doubled_rows, X, timing=False)
    assert found.as_dict()["replay"]["on the chip"] is None
    assert "tpu:" not in str(found)
    assert found.as_text().count("HloModule") == 2


def test_backends_with_targets_have_bytes_and_time_of_their_chips(compiler):
    v5e = xgrad.Backend("v5e", target="tpu:v5e")
    found = xgrad.compare(doubled_rows, X, backends=["cpu", v5e, v5e.replace(target="tpu:v6e")], timing=False)
    assert list(found.runs) == ["cpu", "v5e", "v5e, target=tpu:v6e:1x1"]
    for name in ("v5e", "v5e, target=tpu:v6e:1x1"):
        assert found.as_dict()[name]["report"]["target"]["bytes accessed"] > 256
    assert "bytes accessed on the chip" in str(found)
    assert "not compiled for the chip" not in str(found)


def test_what_cannot_be_asked(monkeypatch):
    chip = xgrad.Backend("chip")
    with pytest.raises(ValueError, match="each backend has its own target"):
        xgrad.compare(doubled_rows, X, backends=["cpu", chip], target="tpu:v5e")
    with pytest.raises(ValueError, match="unknown target 'tpu:v99'"):
        xgrad.compare(doubled_rows, X, target="tpu:v99")
    monkeypatch.setattr(targets, "missing", lambda platform: "its compiler is not installed")
    with pytest.raises(xgrad.errors.TargetError, match="tpu:v5e:1x1: its compiler is not installed"):
        xgrad.compare(doubled_rows, X, target="tpu:v5e")


def test_the_command_line(compiler, tmp_path, capsys):
    file = tmp_path / "chosen.py"
    file.write_text("def row(x):\n    return x[1].sum()\n")
    assert main(["compare", f"{file}:row", "--target", "tpu:v5e", "--repeats", "1"]) == 0
    assert "one program on tpu:v5e:1x1" in capsys.readouterr().out
    for options, words in (
        (["--target", "tpu:v99"], "unknown target 'tpu:v99'"),
        (["--target", "tpu:v5e", "--backends", "cpu"], "argument --target: a backend has its own"),
    ):
        with pytest.raises(SystemExit):
            main(["compare", f"{file}:row", *options])
        assert words in capsys.readouterr().err
