"""What a user would search for: errors of a wrong use of autograd begin with PyTorch's words, and go on with our own.

Each line of a table is a small program; both libraries run it, and the first words of their errors are compared.
"""

import contextlib
import re
import warnings

import pytest
import torch
import torch.utils.checkpoint

import xgrad
import xgrad.utils.checkpoint

from .oracle import behind_name, family

WORDS = 8  # that are compared, or as many as PyTorch's first sentence has

BACKWARD = """
twice               x = leaf(); y = (x * x).sum(); y.backward(); y.backward()
no_scalar           leaf().mul(2).backward()
complex_scalar      (leaf(1.0) * (1 + 1j)).sum().backward()
no_graph            T.ones(3).sum().backward()
shape               leaf().mul(2).backward(T.ones(2))
shape_of_grad       x = leaf(); T.autograd.grad(x * 2, x, T.ones(4))
number              x = leaf(); T.autograd.backward([x * 2, x * 3], [T.ones(3)])
type_of_gradient    x = leaf(); T.autograd.backward([x * 2], [3])
complex_gradient    leaf().mul(2).backward(T.ones(3) * 1j)
no_inputs           x = leaf(); x.sum().backward(inputs=[])
no_inputs_of_grad   x = leaf(); T.autograd.grad(x.sum(), [])
inputs_constant     x = leaf(); x.sum().backward(inputs=[T.ones(3)])
unused              x = leaf(); T.autograd.grad(x.sum(), leaf())
second_unused       x = leaf(); T.autograd.grad(x.sum(), [x, leaf()])
input_constant      x = leaf(); T.autograd.grad(x.sum(), T.ones(3))
input_number        x = leaf(); T.autograd.grad(x.sum(), 3)
materialize         x = leaf(); T.autograd.grad(x.sum(), x, materialize_grads=True, allow_unused=False)
both_names          x = leaf(); T.autograd.backward([x.sum()], grad_tensors=[one], grad_variables=[one])
batch_shape         x = leaf(); T.autograd.grad(x * 2, x, T.ones(3), is_grads_batched=True)
batch_shape_2       x = leaf(); T.autograd.grad(x * 2, x, T.ones(4, 2), is_grads_batched=True)
batch_scalar        x = leaf(); T.autograd.grad(x.sum(), x, one, is_grads_batched=True)
batch_sizes         x = leaf(); T.autograd.grad([x * 2, x * 3], x, [T.ones(4, 3), T.ones(5, 3)], is_grads_batched=True)
freed               x = leaf(); y = x.exp(); y.sum().backward(); y.grad_fn._saved_result
version             x = leaf(); y = x * 1; z = y * y; y.add_(1); z.sum().backward()
version_of_result   x = leaf(); z = x.exp(); z.add_(1); z.sum().backward()
keyword             leaf().sum().backward(foo=1)
detached            x = leaf(); y = x * 1; z = y * y; y.detach_(); z.sum().backward(create_graph=True)
edge_of_constant    T.autograd.graph.get_gradient_edge(T.ones(3))
increment           T.autograd.graph.increment_version(3)
"""

HOOKS = """
dtype               x = leaf(); y = x * 2; y.register_hook(lambda g: g.double()); y.sum().backward()
shape               x = leaf(); y = x * 2; y.register_hook(lambda g: g[:2]); y.sum().backward()
type                x = leaf(); y = x * 2; y.register_hook(lambda g: 3); y.sum().backward()
constant            T.ones(3).register_hook(lambda g: g)
post_of_nonleaf     (leaf() * 2).register_post_accumulate_grad_hook(lambda t: None)
post_of_constant    T.ones(2).register_post_accumulate_grad_hook(lambda t: None)
of_node             x = leaf(); y = x * 2; y.grad_fn.register_hook(lambda a, b: (a[0],) * 3); y.sum().backward()
of_node_type        x = leaf(); y = x * 2; y.grad_fn.register_hook(lambda a, b: 3); y.sum().backward()
before_node         x = leaf(); y = x * 2; y.grad_fn.register_prehook(lambda a: (a[0],) * 2); y.sum().backward()
retain_constant     T.ones(3).retain_grad()
multi_mode          T.autograd.graph.register_multi_grad_hook([leaf()], lambda g: None, mode="x")
unpack_type         x = leaf(); y = packing(lambda t: t, lambda t: 3, lambda: x * x); y.sum().backward()
pack_writes         a = leaf() * 1; packing(lambda t: t.add_(1), lambda t: t, lambda: a * a)
register_twice      twice(raw())
register_types      raw().register_hooks(3, 4)
register_one        raw().register_hooks(same)
register_three      raw().register_hooks(same, same, 3)
register_freed      x = leaf(); y = x * x; r = y.grad_fn._raw_saved_self; y.sum().backward(); twice(r)
new                 type(raw())()
"""

ATTRIBUTES = """
integers            T.tensor([1, 2], requires_grad=True)
integer_factory     T.zeros(2, dtype=T.int64, requires_grad=True)
integers_marked     T.tensor([1, 2]).requires_grad_()
integers_set        T.tensor([1, 2]).requires_grad = True
nonleaf             (leaf() * 2).requires_grad = False
nonleaf_marked      (leaf() * 2).requires_grad_(False)
requires_string     leaf().requires_grad = "x"
no_requires         x = leaf(); del x.requires_grad
grad_type           leaf().grad = 3
grad_shape          leaf().grad = T.ones(2)
grad_self           x = leaf(); x.grad = x
no_data             x = leaf(); del x.data
data_type           leaf().data = 3
data_integer        leaf().data = T.tensor([1, 2])
data_sparse         leaf().data = T.ones(3).to_sparse()
data_sparse_plain   T.ones(3).data = T.ones(3).to_sparse()
data_dense          T.ones(3).to_sparse().data = T.ones(3)
deepcopy            import copy; copy.deepcopy(leaf() * 2)
numpy               leaf().numpy()
dlpack              leaf().__dlpack__()
"""

WRITES = """
leaf                leaf().add_(1)
item                leaf()[0] = 1.0
view_of_leaf        leaf()[0].add_(1)
views_of_leaf       leaf().view(3)[:2].mul_(2)
expanded            T.ones(1).expand(3).add_(1)
unbind              (leaf() * 1).unbind()[0].add_(1)
split               (leaf() * 1).split(2)[0].add_(1)
chunk               (leaf() * 1).chunk(2)[1].add_(1)
split_with_sizes    (leaf() * 1).split([1, 2])[1].add_(1)
of_unbound          b = leaf() * 1; v = b.unbind()[1].view(1); v.add_(1)
base_of_unbound     b = leaf() * 1; v = b.unbind()[0]; b.add_(1); v.grad_fn
under_no_grad       b = leaf() * 1; v = within(T.no_grad, lambda: b.view(3)); v.add_(1)
leaf_under_no_grad  b = leaf(); v = within(T.no_grad, lambda: b.view(3)); v.add_(1)
second_no_grad      b = leaf() * 1; v = b.view(3); w = within(T.no_grad, lambda: v.view(3, 1)); w.add_(1)
view_of_no_grad     b = leaf() * 1; v = within(T.no_grad, lambda: b.view(3)); w = v.view(3, 1); w.add_(1)
stale_no_grad       b = leaf() * 1; v = within(T.no_grad, lambda: b.view(3)); b.add_(1); v.grad_fn
unbind_no_grad      b = leaf() * 1; v = within(T.no_grad, lambda: b.unbind()[0]); v.add_(1)
inference           b = leaf() * 1; v = within(T.inference_mode, lambda: b.view(3)); v.mul_(leaf())
view_of_inference   b = leaf() * 1; v = within(T.inference_mode, lambda: b.view(3)); w = v.view(3, 1); w.mul_(leaf(1))
inference_tensor    b = within(T.inference_mode, lambda: T.ones(3)); b.add_(1)
inference_saved     b = within(T.inference_mode, lambda: T.ones(3)); leaf() * b
inference_marked    b = within(T.inference_mode, lambda: T.ones(3)); b.requires_grad_()
inference_version   b = within(T.inference_mode, lambda: T.ones(3)); b._version
detached_view       (leaf() * 1)[0].detach_()
out                 T.add(leaf(), 1, out=T.ones(3))
out_dtype           T.add(T.ones(3), 1, out=T.ones(3, dtype=T.int64))
shape               T.ones(1).add_(T.ones(3))
dtype               T.ones(3, dtype=T.int64).add_(1.5)
resize              leaf().resize_(2)
resize_nonleaf      (leaf() * 1).resize_(2)
"""

FUNCTION = """
instance            fn()()(leaf())
no_backward         new(forward=staticmethod(lambda ctx, x: x * 2)).apply(leaf()).sum().backward()
both                fn(vjp=lambda ctx, g: g).apply(leaf()).sum().backward()
too_many            fn(backward=lambda ctx, g: (g, g)).apply(leaf()).sum().backward()
too_few             f = fn(forward=lambda ctx, x, y: x * y, backward=lambda ctx, g: g); f.apply(*pair).sum().backward()
type                fn(backward=lambda ctx, g: 3).apply(leaf()).sum().backward()
shape               fn(backward=lambda ctx, g: T.ones(2)).apply(leaf()).sum().backward()
saves_number        fn(forward=lambda ctx, x: (ctx.save_for_backward(3), x * 2)[1]).apply(leaf())
dirty_lost          fn(forward=lambda ctx, x: (ctx.mark_dirty(x), x * 2)[1]).apply(leaf() * 1)
dirty_leaf          fn(forward=lambda ctx, x: (ctx.mark_dirty(x), x.mul_(2))[1]).apply(leaf())
dirty_number        fn(forward=lambda ctx, x: (ctx.mark_dirty(3), x * 2)[1]).apply(leaf() * 1)
without_number      fn(forward=lambda ctx, x: (ctx.mark_non_differentiable(3), x * 2)[1]).apply(leaf() * 1)
view                fn(forward=lambda ctx, x: x.view(3)).apply(leaf() * 1).add_(1)
input               fn(forward=lambda ctx, x: x).apply(leaf() * 1).add_(1)
views               fn(forward=lambda ctx, x: (x[0], x[1]), backward=lambda *a: None).apply(leaf() * 1)[0].add_(1)
view_no_grad        x = leaf() * 1; within(T.no_grad, lambda: fn(forward=lambda ctx, x: x.view(3)).apply(x)).add_(1)
view_no_grad_leaf   x = leaf(); within(T.no_grad, lambda: fn(forward=lambda ctx, x: x[:]).apply(x)).mul_(leaf())
jvp_missing         fw.enter_dual_level(); fn().apply(fw.make_dual(T.ones(3), T.ones(3)))
jvp_shape           fw.enter_dual_level(); fn(jvp=lambda ctx, t: T.ones(2)).apply(fw.make_dual(T.ones(3), T.ones(3)))
ctx_attribute       fn(backward=lambda ctx, g: ctx.nothing).apply(leaf()).sum().backward()
"""

ELSEWHERE = """
no_level            fw.make_dual(T.ones(3), T.ones(3))
tangent_shape       fw.enter_dual_level(); fw.make_dual(T.ones(3), T.ones(2))
tangent_integer     fw.enter_dual_level(); fw.make_dual(T.ones(3, dtype=T.int64), T.ones(3))
level_left          fw.exit_dual_level()
level_nested        fw.enter_dual_level(); fw.enter_dual_level()
out_of_dual         fw.enter_dual_level(); T.add(fw.make_dual(T.ones(3), T.ones(3)), 1, out=T.ones(3))
fewer_saved         n = [0]; ck(changing(n), leaf(), use_reentrant=False).sum().backward()
fewer_saved_debug   n = [0]; ck(changing(n), leaf(), use_reentrant=False, debug=True).sum().backward()
context_reentrant   ck(lambda x: x * 2, leaf(), use_reentrant=True, context_fn=lambda: None)
keyword_reentrant   ck(lambda x: x * 2, leaf(), use_reentrant=True, foo=1)
debug_reentrant     ck(lambda x: x * 2, leaf(), use_reentrant=True, debug=True)
checkpoint_twice    y = ck(lambda x: x.exp(), leaf(), use_reentrant=False).sum(); y.backward(); y.backward()
reentrant_grad      x = leaf(); T.autograd.grad(ck(lambda x: x.exp(), x, use_reentrant=True).sum(), x)
jacobian_type       T.autograd.functional.jacobian(lambda x: x, 3)
jacobian_output     T.autograd.functional.jacobian(lambda x: 3, leaf())
jacobian_strict     T.autograd.functional.jacobian(lambda x: T.ones(3), leaf(), strict=True)
jacobian_strategy   T.autograd.functional.jacobian(lambda x: x * x, leaf(), strategy="foo")
hessian_shape       T.autograd.functional.hessian(lambda x: x * x, leaf())
vjp_no_vector       T.autograd.functional.vjp(lambda x: x * x, leaf())
vjp_shape           T.autograd.functional.vjp(lambda x: x * x, leaf(), T.ones(2))
jvp_number          T.autograd.functional.jvp(lambda x: x * x, leaf(), (T.ones(3), T.ones(3)))
grad_shape          T.func.grad(lambda x: x * x)(T.ones(3))
grad_type           T.func.grad(lambda x: 3.0)(T.ones(3))
grad_argnum         T.func.grad(lambda x: x.sum(), argnums=1)(T.ones(3))
func_vjp_shape      T.func.vjp(lambda x: x * x, T.ones(3))[1](T.ones(2))
func_jvp_type       T.func.jvp(lambda x: x * x, T.ones(3), T.ones(3))
func_jvp_shape      T.func.jvp(lambda x: x * x, (T.ones(3),), (T.ones(2),))
vmap_sizes          T.func.vmap(lambda a, b: a + b)(T.ones(2), T.ones(3))
vmap_none           T.func.vmap(lambda a: a, in_dims=None)(T.ones(2))
vmap_dim            T.func.vmap(lambda a: a, in_dims=3)(T.ones(2))
vmap_type           T.func.vmap(lambda a: a)(3)
vmap_output         T.func.vmap(lambda a: 3)(T.ones(3))
vmap_item           T.func.vmap(lambda a: a.item())(T.ones(3))
vmap_branch         T.func.vmap(lambda a: a if a > 0 else -a)(T.ones(3))
vmap_random         T.func.vmap(lambda a: T.rand(2) + a)(T.ones(3, 2))
vmap_randomness     T.func.vmap(lambda a: a, randomness="foo")(T.ones(3, 2))
vmap_backward       T.func.vmap(lambda a: a.sum().backward())(leaf())
anomaly             x = leaf(0, 0); T.autograd.set_detect_anomaly(True); (x.sqrt() * 0).sum().backward()
grad_enabled        T.set_grad_enabled("x")
hooks_disabled      within(disabled, lambda: packing(same, same, leaf))
"""

TABLES = {name: table for name, table in globals().items() if name.isupper() and isinstance(table, str)}
PROGRAMS = [
    pytest.param(line[20:], id=f"{name.lower()}-{line[:20].strip()}")
    for name, table in TABLES.items()
    for line in table.strip().splitlines()
]


def scope(T):
    """What the programs are written with."""

    def leaf(*numbers):
        return T.tensor([float(n) for n in numbers or (1, 2, 3)], requires_grad=True)

    def within(mode, function):
        with mode():
            return function()

    def packing(pack, unpack, function):
        return within(lambda: T.autograd.graph.saved_tensors_hooks(pack, unpack), function)

    def new(**body):
        return type("MyFn", (T.autograd.Function,), body)

    def fn(**body):
        usual = {"forward": lambda ctx, x: x * 2, "backward": lambda ctx, g: g * 2}
        return new(**{name: staticmethod(method) for name, method in (usual | body).items()})

    kept = []  # PyTorch's saved tensors must not outlive their nodes

    def raw():
        kept.append(leaf() * leaf())
        return kept[-1].grad_fn._raw_saved_self

    def twice(saved):
        saved.register_hooks(same, same)
        saved.register_hooks(same, same)

    def same(value):
        return value

    def disabled():
        return T.autograd.graph.disable_saved_tensors_hooks("no hooks here")

    def changing(runs):
        def function(x):
            runs[0] += 1
            return x.exp().exp() if runs[0] == 1 else x.exp()

        return function

    return {
        "T": T, "one": T.ones(()), "fw": T.autograd.forward_ad, "ck": T.utils.checkpoint.checkpoint, "leaf": leaf,
        "within": within, "packing": packing, "new": new, "fn": fn, "raw": raw, "disabled": disabled,
        "pair": (leaf(), leaf()), "changing": changing, "same": same, "twice": twice,
    }  # fmt: skip


def error_of(program, T):
    names = scope(T)
    try:
        exec(program, names)
    except Exception as error:
        return error
    finally:
        T.autograd.set_detect_anomaly(False)
        with contextlib.suppress(RuntimeError):
            T.autograd.forward_ad.exit_dual_level()
    return None


def first_words(error):
    first = re.split(r"(?<=[a-z)\]])[.:](?:\s|$)", str(error).replace("xgrad", "torch"))[0]
    return re.findall(r"\w+", first)[:WORDS]


def words(text, count):
    return re.findall(r"\w+", text.replace("xgrad", "torch"))[:count]


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_error_begins_with_the_words_that_pytorch_users_search_for(program):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs, ours = error_of(program, torch), error_of(program, xgrad)
    assert theirs is not None, "torch raised nothing"
    assert ours is not None, f"xgrad raised nothing, torch {theirs!r}"
    assert isinstance(ours, family(theirs)), f"{ours!r}, torch {theirs!r}"
    expected = first_words(theirs)
    found = [words(text, len(expected)) for text in (str(ours), behind_name(ours))]
    assert expected in found, f"{ours}\ntorch: {theirs}"


def test_a_view_made_under_no_grad_says_where_to_move_what():
    base = torch.ones(3, requires_grad=True) * 1
    with torch.no_grad():
        parent = base.view(3)
    with pytest.raises(RuntimeError) as theirs:
        parent.view(3, 1).add_(1)
    phrase = "moving both the view and the inplace either both inside the no_grad block"
    assert phrase in str(theirs.value)
    base = xgrad.ones(3, requires_grad=True) * 1
    with xgrad.no_grad():
        parent = base.view(3)
    with pytest.raises(RuntimeError, match=phrase):
        parent.view(3, 1).add_(1)


def test_shapes_in_a_mismatch_are_printed_as_sizes():
    x = xgrad.ones(3, requires_grad=True)
    for call in (lambda: (x * 2).backward(xgrad.ones(2)), lambda: xgrad.autograd.grad(x * 2, x, xgrad.ones(2))):
        with pytest.raises(RuntimeError, match=r"shape of xgrad.Size\(\[2\]\) and output\[0\] has a shape of xgrad.Si"):
            call()
    with pytest.raises(RuntimeError, match=r"shape of xgrad.Size\(\[2\]\) and output\[0\] has a shape of xgrad.Size"):
        xgrad.autograd.grad(x * 2, x, xgrad.ones(4, 2), is_grads_batched=True)


def test_a_version_error_is_a_runtime_error_that_begins_with_the_phrase():
    x = xgrad.ones(3, requires_grad=True)
    y = x * 1
    z = y * y
    y.add_(1)
    with pytest.raises(xgrad.errors.VersionError) as error:
        z.sum().backward()
    assert isinstance(error.value, RuntimeError)
    assert str(error.value).startswith("one of the variables needed for gradient computation has been modified by an")


def _first_gradients(T):
    """The name of the first gradient's node, for leaves with one element after another, with gaps, and expanded."""
    found = []
    for start in (T.ones(3), T.ones(6)[::2], T.ones(1).expand(3), T.ones(2, 3).t(), T.ones(6)[2:5]):
        x = start.detach().requires_grad_()
        (x * x).sum().backward(create_graph=True)
        found.append((x.grad.grad_fn.name(), [n and n.name() for n, _ in x.grad.grad_fn.next_functions]))
        (x * x).sum().backward(create_graph=True)
        found.append(x.grad.grad_fn.name())
        found.append(T.autograd.grad(x.grad.sum(), x)[0].tolist())
    x = T.ones(3, requires_grad=True)
    (x * 2).sum().backward(create_graph=True)
    return [*found, x.grad.grad_fn]


@pytest.mark.filterwarnings("ignore:Using backward")
def test_a_first_recorded_gradient_is_copied_by_copy_backwards():
    assert _first_gradients(xgrad) == _first_gradients(torch)
