"""viz.graph and viz.storage: what they say of small graphs, exactly; nothing changes by looking."""

import pytest

import xgrad
from tests.viz.checks import check_layout, texts
from xgrad import viz

MLP = """\
loss  []
MeanBackward0
[4, 2] → h: TanhBackward0  saves result [4, 2] 32 B{hooks}
[4, 2] → AddBackward0
├─ [4, 2] → MatmulBackward0  saves self [4, 3] 48 B
│  w  [3, 2]  AccumulateGrad  [post-accumulate hook step]
└─ bias  [2]  AccumulateGrad
6 nodes, 80 B saved"""
HOOKS = "  [tensor hook double]  [retains grad]  [pre-hook before]  [post-hook after]"

WRITES = """\
row  [3]  view: [0:1] reshape(3)
SelectBackward0  [0:1] reshape(3)
[2, 3] ┄ CopySlices  wrote [0:1] reshape(3)  #1
│ MulBackward0  saves self [3] 12 B  saves other [3] 12 B
├─ base [2, 3] → CloneBackward0
│  leaf  [2, 3]  AccumulateGrad
└─ w  [3]  AccumulateGrad
base  [2, 3]
CopySlices  #1, above
5 nodes, 24 B saved, 12 B of it by leaves"""


def double(grad):
    return grad * 2


def before(grads):
    return None


def after(inputs, outputs):
    return None


def step(variable):
    return None


def mlp():
    x, w = xgrad.ones(4, 3), xgrad.ones(3, 2, requires_grad=True)
    b = xgrad.ones(2, requires_grad=True)
    h = (x @ w + b).tanh()
    h.register_hook(double)
    h.retain_grad()
    h.grad_fn.register_prehook(before)
    h.grad_fn.register_hook(after)
    w.register_post_accumulate_grad_hook(step)
    return h.mean(), h, w, b


def written():
    leaf = xgrad.ones(2, 3).requires_grad_()
    w = xgrad.ones(3, requires_grad=True)
    base = leaf.clone()
    row = base[0]
    row.mul_(w)
    return row, base, leaf, w


def test_text_of_a_network():
    loss, h, w, b = mlp()
    assert str(viz.graph(loss, params={"bias": b})).splitlines() == MLP.format(hooks=HOOKS).splitlines()
    assert h.grad is None
    assert w.grad is None


def test_text_of_a_write_through_a_view():
    row, base, leaf, w = written()
    assert str(viz.graph([row, base])).splitlines() == WRITES.splitlines()
    assert leaf.grad is w.grad is None


@pytest.mark.parametrize("direction", ["down", "right"])
@pytest.mark.parametrize("make", [mlp, written])
def test_pictures_say_what_the_text_says(make, direction):
    drawing = viz.graph(make()[0], direction=direction)
    check_layout(drawing.layout)
    shown = " ".join(filter(None, texts(drawing.layout)))
    for word in ("CopySlices", "wrote [0:1]", "MulBackward0") if make is written else ("tensor hook double", "32 B"):
        assert word in shown


def test_looking_changes_nothing():
    loss, h, w, b = mlp()
    viz.graph(loss).svg()
    viz.backward(loss).html()
    loss.backward()
    expected = [t.grad.tolist() for t in (w, b, h)]
    loss, h, w, b = mlp()
    loss.backward()
    assert [t.grad.tolist() for t in (w, b, h)] == expected


def test_names_come_from_a_module_and_from_lists():
    net = xgrad.nn.Linear(3, 2)
    weights = [xgrad.ones(2, 2, requires_grad=True) for _ in range(5)]
    y = net(xgrad.ones(1, 3)) @ weights[0] @ weights[1]
    names = {box.name for box in viz.graph(y).scene.boxes if box.kind == "leaf"}
    assert names == {"net.weight", "net.bias", "weights[0]", "weights[1]"}
    names = {box.name for box in viz.graph(y, params=net).scene.boxes if box.kind == "leaf"}
    assert {"weight", "bias"} <= names
    for w in weights:  # leaves a variable behind
        y = y + w
    first = weights[0]
    names = {box.name for box in viz.graph(y).scene.boxes if box.kind == "leaf"}
    assert names == {"net.weight", "net.bias", "first", *(f"weights[{i}]" for i in range(1, 5))}
    assert w is not first
    with pytest.raises(TypeError, match="dictionary of tensors or a Module, but got a list"):
        viz.graph(y, params=[net.weight])


def test_dtypes_other_than_float32_are_named():
    x = xgrad.ones(2, dtype=xgrad.bfloat16, requires_grad=True)
    assert "[2] bfloat16 → SinBackward0" in str(viz.graph((x.sin() * 2).sum()))


def test_released_packed_and_shared_values_are_told():
    x = xgrad.ones(8, requires_grad=True)
    e = x.exp()
    y = e * x
    assert str(viz.graph(y)).endswith("3 nodes, 64 B saved, 32 B of it by leaves")  # e's array counts once
    y.sum().backward()
    assert str(viz.graph(y)).count("released") == 2
    with xgrad.autograd.graph.saved_tensors_hooks(lambda t: "away", lambda packed: x):
        y = x.exp()
    assert "packed as str, <lambda>" in str(viz.graph(y))


def test_equal_layers_of_a_network_fold():
    x = xgrad.ones(2, 4)
    weights = [xgrad.ones(4, 4, requires_grad=True) for _ in range(13)]
    h = x @ weights[0]
    for w in weights[1:]:
        h = h + (h @ w).tanh()
    drawing = viz.graph(h.sum())
    (block,) = [box for box in drawing.scene.boxes if box.kind == "block"]
    assert block.title == "× 12"
    assert "weights[{1…12}]" in drawing.text()
    assert "cluster" in drawing.dot()
    check_layout(drawing.layout)
    assert len(viz.graph(h.sum(), fold=False).scene.boxes) > 40


def test_what_has_no_graph_is_refused():
    with pytest.raises(RuntimeError, match="has no graph: it does not require grad"):
        viz.graph(xgrad.ones(2))
    with pytest.raises(TypeError, match="expected a tensor, or a list of tensors, but got int"):
        viz.graph(3)
    with pytest.raises(ValueError, match='"down" or "right"'):
        viz.graph(xgrad.ones(2, requires_grad=True) * 2, direction="up")


def test_a_custom_function_and_an_output_of_many():
    class Twice(xgrad.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    x = xgrad.ones(4, requires_grad=True)
    a, b = Twice.apply(x).chunk(2)
    text = str(viz.graph(a * b))
    assert "TwiceBackward  saves tensor 0 [4] 16 B" in text
    assert "output 0" in text
    assert "output 1" in text


# -- storages ----------------------------------------------------------------------------------------------------------


def test_a_storage_shows_who_shares_it_and_who_is_stale():
    base = xgrad.zeros(4, 6)
    row, column = base[1], base.t()[2]
    row.tolist(), column.tolist()
    row.add_(1)
    alias = base.detach()
    drawing = viz.storage(column)
    check_layout(drawing.layout)
    kinds = {box.name: box.kind for box in drawing.scene.boxes}
    assert kinds["column"] == "stale"
    assert {"base", "row", "alias"} <= kinds.keys()
    text = drawing.text()
    assert "[:, 2:3] reshape(4) → storage" in text
    assert "stale: read at generation 0" in text
    assert "generation 1, version 1" in text
    column.tolist()
    assert {box.name: box.kind for box in viz.storage(base).scene.boxes}["column"] == "tensor"
    assert alias.shape == (4, 6)


def test_a_storage_shows_a_grad_fn_that_a_write_made_old():
    base = xgrad.ones(2, 3, requires_grad=True).clone()
    row = base[0]
    base.mul_(2)
    assert "its grad_fn is of version 0" in str(viz.storage(row))
    assert row._view.attr_version == 0  # looking did not renew it


def test_a_tensor_without_views_is_its_array():
    x = xgrad.ones(3)
    assert "no other tensor shares it" in str(viz.storage(x))
    with pytest.raises(TypeError, match="but got int"):
        viz.storage(3)


# -- files -------------------------------------------------------------------------------------------------------------


def test_files(tmp_path):
    loss, *_ = mlp()
    drawing = viz.graph(loss)
    for ending, start in ((".svg", "<svg"), (".dot", "digraph"), (".html", "<!DOCTYPE html>"), (".txt", "loss  []")):
        drawing.save(tmp_path / f"x{ending}")
        assert (tmp_path / f"x{ending}").read_text(encoding="utf-8").startswith(start)
    with pytest.raises(ValueError, match=r"\.svg, \.dot, \.html or \.txt"):
        drawing.save(tmp_path / "x.png")
    assert drawing._repr_svg_() == drawing.svg()
    assert drawing._repr_html_().startswith("<div")
    assert "boxes; print() shows it" in repr(drawing)
