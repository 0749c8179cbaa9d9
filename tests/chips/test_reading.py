"""Facts read from programs that the compiler of a v5e has made (programs/)."""

from pathlib import Path

import pytest

from xgrad.chips.reading import Reading, padded

PROGRAMS = Path(__file__).parent / "programs"
STEP = ("inputs", "w", "w: momentum_buffer", "numbers")


def reading(name, *args):
    return Reading((PROGRAMS / f"{name}.txt").read_text(), *args)


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("f32[8,128]{1,0:T(8,128)}", 4096),
        ("f32[9,129]{1,0:T(8,128)}", 16 * 256 * 4),
        ("f32[9,129]{0,1:T(8,128)}", 136 * 128 * 4),  # the first dimension is the minor one
        ("bf16[8,128]{1,0:T(8,128)(2,1)}", 2048),
        ("pred[100]{0:T(512)(128)(4,1)}", 512),
        ("f32[3,2]{1,0:T(8,128)}", 4096),
        ("f32[5,3,2]{2,1,0:T(8,128)}", 5 * 4096),
        ("f32[]{:T(128)}", 4),
        ("f32[3,2]{1,0}", 24),  # no tiles: not a TPU's
        ("(f32[8,128]{1,0:T(8,128)}, f32[8,128]{1,0:T(8,128)S(1)}, u32[]{:S(2)})", 4096),
        ("token[]", 0),
    ],
)
def test_bytes_in_tiles(kind, size):
    assert padded(kind) == size


def test_the_heaviest_parts_come_first_with_lines_and_operators():
    read = reading("step", STEP)
    assert read.cycles == sum(part.cycles for part in read.parts) > 0
    assert [p.cycles for p in read.parts] == sorted((p.cycles for p in read.parts), reverse=True)
    assert ("store.py:23", "matmul, tanh, square, mean", 1) in [p[1:] for p in read.parts]


def test_results_in_donated_operands():
    assert reading("step", STEP).aliased == {1, 2}
    assert reading("row").aliased == set()


def test_what_is_alive_has_names():
    alive = reading("step", STEP).alive
    assert [(b.name, b.shape, b.bytes, b.padded) for b in alive[:3]] == [
        ("inputs", "[256, 100]", 102400, 104 * 256 * 4),
        ("w", "[100, 3]", 1200, 2048),
        ("w: momentum_buffer", "[100, 3]", 1200, 2048),
    ]
    assert {b.name for b in alive[3:]} >= {"numbers", "mean"}
    assert {b.line for b in alive} >= {"store.py:23", "store.py:25", ""}


def test_padding_of_tiles():
    padding = reading("step", STEP).padding
    assert {"inputs", "w"} <= {b.name for b in padding}
    assert all(b.padded > b.bytes for b in padding)


def test_gathers_and_fetches_of_whole_operands():
    accesses = reading("row", ("x", "i", "table", "rows")).accesses
    assert [(a.what, a.bytes) for a in accesses] == [
        ("all of x is fetched, a part read", 1 << 22),
        ("copy of the whole of table", 512 * 100 * 4),
        ("gather of 64 slices of 100", 64 * 100 * 4),
    ]
    assert accesses[0].operators == "dynamic_slice"


def test_exchanges_along_axes_of_the_mesh():
    found = reading("mesh", (), {"data": 2, "model": 2}).exchanges
    assert {(e.what, e.axes, e.times) for e in found} == {
        ("all-reduce", "model", 1), ("all-reduce", "data", 1), ("collective-permute", "data", 1),
    }  # fmt: skip
    assert next(e.bytes for e in found if (e.what, e.axes) == ("all-reduce", "model")) == 128 * 512 * 4


@pytest.mark.parametrize(
    ("groups", "axes"),
    [
        ("{{0,1},{2,3},{4,5},{6,7}}", "c"),
        ("{{0,1,2,3},{4,5,6,7}}", "b, c"),
        ("[4,2]<=[8]", "c"),
        ("[4,2]<=[2,4]T(1,0)", "a"),
        ("[2,4]<=[2,2,2]T(1,0,2)", "a, c"),
        ("mesh['x'=2,'y'=4] {'x'}", "a"),
        ("mesh['x'=2,'y'=4] {'y'}", "b, c"),
        ("{}", "a, b, c"),
    ],
)
def test_groups_of_devices(groups, axes):
    line = f"  ROOT %r = f32[8]{{0}} all-reduce(%p), replica_groups={groups}, to_apply=%add"
    text = f"HloModule m\n\nENTRY %main (p: f32[8]) -> f32[8] {{\n  %p = f32[8]{{0}} parameter(0)\n{line}\n}}\n"
    (found,) = Reading(text, (), {"a": 2, "b": 2, "c": 2}).exchanges
    assert found == ("all-reduce", axes, 1, 32)
    assert Reading(text).exchanges[0].axes == "all devices"


def test_an_empty_text_has_no_facts():
    read = Reading("")
    assert (read.parts, read.alive, read.padding, read.accesses, read.exchanges) == ([], [], [], [], [])
