"""viz.backward: the order is the engine's, and nothing of it happens."""

import json
import random
import re

import pytest

import xgrad
from tests.lanes import budget
from xgrad import viz
from xgrad.viz.hlo import scene_of_hlo

TEXT = """\
0  start: [] → SumBackward0 | ready: SumBackward0
1  SumBackward0: computes 1 gradient; [2] → MulBackward0 | ready: MulBackward0
2  MulBackward0: computes 2 gradients; releases self 8 B, other 8 B; [2] → ExpBackward0; [2] → AccumulateGrad of x \
| ready: ExpBackward0 | waiting: AccumulateGrad of x (1 of 2)
3  ExpBackward0: computes 1 gradient; releases result 8 B; [2] → AccumulateGrad of x, added to the buffer \
| ready: AccumulateGrad of x
4  AccumulateGrad of x: calls tensor hook double; x.grad is the gradient; calls post-accumulate hook note"""


def double(grad):
    return grad * 2


def note(variable):
    return None


def example():
    x = xgrad.ones(2, requires_grad=True)
    x.register_hook(double)
    x.register_post_accumulate_grad_hook(note)
    return (x.exp() * x).sum(), x


def random_graph(seed):
    """A loss of random operations, views and writes, and its leaves."""
    r = random.Random(seed)
    leaves = [xgrad.ones(3, requires_grad=True) for _ in range(3)]
    values = [leaf * 1 for leaf in leaves] + leaves
    for _ in range(r.randrange(3, 14)):
        a, b = r.choice(values), r.choice(values)
        match r.randrange(5):
            case 0:
                values.append(a * b)
            case 1:
                values.append(a + b)
            case 2:
                values.append(a.sin())
            case 3:
                values.append(a.flip(0)[:3])
            case 4:
                base = a.clone()
                base[1:].mul_(b[:2].detach() if r.random() < 0.5 else b[:2])
                values.append(base)
    return sum(value.sum() for value in values[-3:]), leaves


def ran(loss, inputs=None):
    """Names of the nodes that a backward runs, in order: each has a pre-hook."""
    order, seen, waiting = [], set(), [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            node.register_prehook(lambda grads, node=node: order.append(node.name().removeprefix("torch::autograd::")))
            waiting += [child for child, _ in node.next_functions if child is not None]
    loss.backward(inputs=inputs)
    return order


def test_text_is_a_line_for_each_step():
    loss, x = example()
    assert str(viz.backward(loss)).splitlines() == TEXT.splitlines()
    assert x.grad is None
    assert "releases" not in str(viz.backward(loss, retain_graph=True))
    loss.backward()
    assert x.grad.tolist() == pytest.approx([4 * 2.7182817] * 2)
    assert "adds to x.grad" in str(viz.backward((x * 2).sum()))


@budget(8, 300)
def test_the_order_is_the_engines(budget):
    for seed in range(budget):
        loss, _ = random_graph(seed)
        steps = [step.title.split(" of ")[0] for step in viz.backward(loss).steps[1:]]
        assert steps == ran(loss), seed


@budget(4, 100)
def test_the_order_is_the_engines_for_some_inputs(budget):
    for seed in range(budget):
        loss, leaves = random_graph(seed)
        wanted = leaves[:1] if viz_reaches(loss, leaves[0]) else None
        steps = [step.title.split(" of ")[0] for step in viz.backward(loss, inputs=wanted).steps[1:]]
        assert steps == ran(loss, wanted), seed


def viz_reaches(loss, leaf):
    return any(box.name == "leaf" for box in viz.graph(loss, params={"leaf": leaf}, fold=False).scene.boxes)


def test_boxes_say_when_their_nodes_run():
    loss, x = example()
    lines = {box.title or box.name: [text for text, _ in box.lines] for box in viz.backward(loss).scene.boxes}
    assert lines["MulBackward0"][0] == "step 2"
    assert lines["x"][:2] == ["step 4", str(list(x.shape))]


def test_the_page_has_the_steps_as_data_that_no_name_can_leave():
    x = xgrad.ones(2, requires_grad=True)
    loss = (x * 2).sum()
    page = viz.backward(loss, params={"</script><b>": x}).html()
    assert page.count("</script>") == 1
    assert "<b>" not in page
    steps = json.loads(re.search(r"const steps = (\[.*\]);\n", page)[1])
    assert [step["node"] for step in steps] == [-1, 0, 1, 2]
    assert steps[-1]["title"] == "AccumulateGrad of </script><b>"
    marks = [re.search(r'data-xgrad-steps="(\w+)"', viz.backward(loss).html())[1] for _ in range(2)]
    assert marks[0] != marks[1]
    assert "the steps as text</summary><pre>0  start" in page  # without scripts


def test_gradients_that_the_inputs_do_not_need_are_not_counted():
    x, w = (xgrad.ones(2, requires_grad=True) for _ in range(2))
    loss = (x * w).sum()
    assert "MulBackward0: computes 2 gradients" in str(viz.backward(loss))
    assert "MulBackward0: computes 1 gradient;" in str(viz.backward(loss, inputs=[x]))


def test_a_program_that_returns_its_argument_has_an_arrow():
    text = "HloModule m\n\nENTRY %main (x: f32[2]) -> f32[2] {\n  ROOT %x = f32[2]{0} parameter(0)\n}\n"
    scene = scene_of_hlo(text)
    assert [(edge.source, edge.target) for edge in scene.edges] == [(0, 1)]
