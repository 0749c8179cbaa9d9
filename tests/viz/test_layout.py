"""The layout keeps its promises on random scenes; what is written is escaped."""

import random
import time

import pytest

from tests.lanes import budget
from tests.viz.checks import check_layout, texts
from xgrad.viz.dot import dot
from xgrad.viz.drawing import Drawing
from xgrad.viz.fold import folded, pattern
from xgrad.viz.layout import layout
from xgrad.viz.ordering import crossings, ordered
from xgrad.viz.scene import Box, Edge, Scene
from xgrad.viz.text_width import shortened, width


def random_scene(seed, count=None):
    r = random.Random(seed)
    count = r.randrange(1, 24) if count is None else count
    scene = Scene(direction=r.choice(["down", "right"]), title=r.choice(["", "a title"]))
    for i in range(count):
        lines = [("saves self [2, 3] 24 B", "saved")] * r.randrange(4)
        kind = r.choice(["operator", "view", "write", "leaf", "result"])
        inner = random_scene(seed + 1000 + i, 3) if r.random() < 0.08 else None
        scene.add(Box("Node" * r.randrange(1, 6), kind, name=r.choice(["", "x"]), lines=lines, inner=inner))
    for _ in range(r.randrange(2 * count)):
        a, b = r.randrange(count), r.randrange(count)
        if a != b:
            label = r.choice(["", "", "[2, 3]", "[128, 128] float64"])
            scene.edges.append(Edge(min(a, b), max(a, b), label, dashed=r.random() < 0.2))
    return scene


@budget(25, 400)
def test_boxes_and_labels_do_not_overlap_and_edges_end_at_their_boxes(budget):
    for seed in range(budget):
        check_layout(layout(random_scene(seed)))


def test_a_cycle_is_refused():
    scene = Scene(boxes=[Box("a"), Box("b")], edges=[Edge(0, 1), Edge(1, 0)])
    with pytest.raises(ValueError, match="without cycles"):
        layout(scene)


def test_an_empty_scene_has_a_picture():
    assert "<svg" in Drawing(Scene()).svg()


def test_crossings_that_can_be_avoided_are():
    below = [[7], [6], [5], [4], [], [], [], []]
    above = [[], [], [], [], [3], [2], [1], [0]]
    rows = [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert crossings(rows, below) == 6
    assert crossings(ordered(rows, above, below), below) == 0


def test_names_are_escaped():
    name = """<b>&"quote'd" \\ </script>"""
    scene = Scene(boxes=[Box("f<x>", name=name), Box("g")], edges=[Edge(0, 1, "a<b & c")])
    drawing = Drawing(scene)
    assert texts(drawing.layout) == ["a<b & c", f"{name}: f<x>", "g"]
    assert "<b>" not in drawing.html()
    assert '\\"quote' in dot(scene)
    assert "\\\\ </script>" in dot(scene)


def test_a_chain_is_straight_and_long_edges_are():
    scene = Scene(boxes=[Box(f"n{i}") for i in range(6)], edges=[Edge(i, i + 1) for i in range(5)] + [Edge(0, 5)])
    found = layout(scene)
    centres = [box.x + box.width / 2 for box in found.boxes[1:5]]
    assert max(centres) - min(centres) < 1
    across = {point[0] for command, points in found.curves[5].path[2:-2] for point in points}
    assert len(across) <= 2  # one bend into the straight part, one out of it


def test_widths_are_those_of_the_font():
    assert width("Hello", 1000) == 722 + 556 + 222 + 222 + 556
    assert width("Hello", 1000, bold=True) > width("Hello", 1000)
    assert width("日本", 10) == 20
    assert shortened("x" * 100, 11) == "x" * 5 + "…" + "x" * 5


# -- folding -----------------------------------------------------------------------------------------------------------


def layers(count, skip=True):
    """A head, `count` equal layers of three nodes and a weight, with a shared leaf."""
    scene = Scene(boxes=[Box("Head", key="head")])
    shared = scene.add(Box("", "leaf", name="shared", key="leaf"))
    last = 0
    for i in reversed(range(count)):
        add, act, mul = (scene.add(Box(title, key=title, members=[i])) for title in ("Add", "Act", "Mul"))
        weight = scene.add(Box("", "leaf", name=f"layers.{i}.w", key="leaf"))
        scene.edges += [Edge(last, add, "[4]"), Edge(add, act), Edge(act, mul), Edge(mul, weight), Edge(act, shared)]
        last = mul
        if skip:
            scene.edges.append(Edge(add, mul))
    return scene


def test_equal_layers_are_one_box():
    scene = folded(layers(12), True)
    blocks = [box for box in scene.boxes if box.kind == "block"]
    assert len(blocks) == 1
    (block,) = blocks
    assert block.title == "× 12"
    assert sorted(set(block.members)) == list(range(12))
    names = [box.heading for box in block.inner.boxes]
    assert names[:4] == ["Add", "Act", "Mul", "layers.{0…11}.w"]
    assert sorted(names[4:]) == ["in", "out", "shared"]
    check_layout(layout(scene))
    assert len([edge for edge in scene.edges if scene.boxes[edge.target].name == "shared"]) == 1


def test_a_layer_that_differs_is_not_folded():
    scene = layers(12)
    scene.boxes[3 + 4 * 5].lines.append(("hook", "hook"))
    scene.boxes[3 + 4 * 5].key = "another"
    titles = [box.title for box in folded(scene, True).boxes]
    assert titles.count("× 5") + titles.count("× 6") == 2
    assert "× 12" not in titles


def test_weights_that_a_program_reads_are_one_box():
    scene = Scene(boxes=[Box("", "leaf", name="x", key="x")])
    last = 0
    for i in range(12):
        weight = scene.add(Box("", "leaf", name=f"w[{i}]", key="weight"))
        matmul, tanh = scene.add(Box("matmul")), scene.add(Box("tanh"))
        scene.edges += [Edge(last, matmul, "[4]"), Edge(weight, matmul, "[4, 4]"), Edge(matmul, tanh, "[4]")]
        last = tanh
    scene = folded(scene)
    assert sorted(box.heading for box in scene.boxes) == ["w[{0…11}]", "x", "× 12"]
    assert len(scene.edges) == 2
    check_layout(layout(scene))


def test_small_scenes_stay_open_and_fold_false_opens_all():
    assert len(folded(layers(3)).boxes) == len(layers(3).boxes)
    assert len(folded(layers(12), False).boxes) == len(layers(12).boxes)


@pytest.mark.parametrize("direction", ["down", "right"])
def test_five_thousand_nodes_take_a_few_seconds(direction):
    scene = layers(1250)
    scene.direction = direction
    start = time.process_time()
    found = layout(folded(scene))
    assert len(found.boxes) < 10
    assert time.process_time() - start < 10


@pytest.mark.exhaustive
def test_five_thousand_different_nodes_take_a_bounded_time():
    r = random.Random(0)
    scene = Scene(boxes=[Box(f"Node{r.random()}") for _ in range(5000)])
    scene.edges = [Edge(i, min(4999, i + 1 + int(r.expovariate(0.1)))) for i in range(4999) for _ in range(2)]
    scene.edges = [edge for edge in scene.edges if edge.source < edge.target]
    start = time.process_time()
    found = layout(folded(scene))
    assert time.process_time() - start < 60
    for edge, curve in zip(scene.edges, found.curves):
        assert abs(curve.end[1] - found.boxes[edge.target].y) < 0.2


def test_patterns_of_names():
    assert pattern(["a.0.w", "a.2.w", "a.1.w"]) == "a.{0…2}.w"
    assert pattern(["w", "w"]) == "w"
    assert pattern(["a", "b", "c"]) == "a, …, c"
    assert pattern(["", ""]) == ""
