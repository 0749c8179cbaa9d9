"""Optimizer as a PyTorch user knows one: steps, groups, errors, hooks; what a step does to aliases and buffers."""

import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

import xgrad
from xgrad.interop.optax import Optimizer

VALUES = [np.arange(6.0).reshape(2, 3) / 7 - 0.3, np.array([0.5, -1.5, 2.0])]


def parameters(T=xgrad, values=VALUES):
    return [T.tensor(v, requires_grad=True) for v in values]


def loss_of(w, b):
    return ((w * w * b).sum(0) * b).sin().sum()


def inject(factory=optax.sgd, **options):
    return optax.inject_hyperparams(factory)(**{"learning_rate": 0.1, **options})


def assert_same(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("tx", "theirs"),
    [
        (lambda: optax.sgd(0.1, momentum=0.9), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)),
        (lambda: optax.adam(0.1), lambda p: torch.optim.Adam(p, 0.1)),
        (lambda: optax.adamw(0.1, weight_decay=0.02), lambda p: torch.optim.AdamW(p, 0.1, weight_decay=0.02)),
    ],
    ids=["sgd", "adam", "adamw"],
)
def test_training_is_that_of_torch(tx, theirs):
    ours, known = parameters(), parameters(torch)
    for params, optimizer in ((ours, Optimizer(ours, tx())), (known, theirs(known))):
        for _ in range(4):
            optimizer.zero_grad()
            loss_of(*params).backward()
            optimizer.step()
    assert_same(ours, known)


def test_a_parameter_without_gradient_is_skipped_with_its_state():
    params = parameters(values=[np.ones(3)] * 3)
    optimizer = Optimizer(params, optax.chain(optax.trace(0.5), optax.scale(-1.0)))
    for pattern in ((1, 1, 0), (1, 0, 0), (1, 1, 1), (0, 0, 0), (1, 1, 0)):
        for p, here in zip(params, pattern):
            p.grad = xgrad.ones(3, dtype=xgrad.float64) if here else None
        optimizer.step()
    # As torch.optim.SGD(momentum=0.5): each has its own momentum.
    for p, steps in zip(params, (4, 3, 1)):
        momentum, value = 0.0, 1.0
        for _ in range(steps):
            momentum = 0.5 * momentum + 1
            value -= momentum
        assert p.tolist() == [value] * 3


def test_skipping_is_an_error_where_the_state_is_of_all_parameters():
    params = parameters()
    optimizer = Optimizer(params, optax.flatten(optax.adam(0.1)))
    params[0].grad = xgrad.ones(2, 3, dtype=xgrad.float64)
    with pytest.raises(RuntimeError, match="cannot skip those without a gradient"):
        optimizer.step()
    assert_same(params, parameters(torch))


def test_zero_grad():
    params = parameters()
    optimizer = Optimizer(params, optax.sgd(0.1))
    loss_of(*params).backward()
    kept = params[0].grad
    params[1].grad = None
    optimizer.zero_grad(set_to_none=False)
    assert params[0].grad is kept
    assert kept.tolist() == [[0.0] * 3] * 2
    assert params[1].grad is None
    optimizer.zero_grad()
    assert params[0].grad is None


def test_aliases_and_versions_see_a_step_as_an_in_place_operation():
    params = parameters()
    row, alias = params[0].detach()[1], params[1].data
    y = params[1] * params[1]
    optimizer = Optimizer(params, optax.sgd(1.0))
    for p in params:
        p.grad = xgrad.ones(*p.shape, dtype=xgrad.float64)
    versions = [p._version for p in params]
    optimizer.step()
    assert [p._version for p in params] == [v + 1 for v in versions]
    np.testing.assert_array_equal(row, VALUES[0][1] - 1)
    np.testing.assert_array_equal(alias, VALUES[1] - 1)
    assert all(p.is_leaf and p.requires_grad for p in params)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_parameters_that_are_views_are_written_through():
    flat = xgrad.tensor(np.arange(5.0))
    params = [flat[:2].requires_grad_(), flat[2:].requires_grad_()]
    optimizer = Optimizer(params, optax.sgd(1.0))
    for p in params:
        p.grad = xgrad.ones(*p.shape, dtype=xgrad.float64)
    optimizer.step()
    optimizer.step()
    assert flat.tolist() == [-2, -1, 0, 1, 2]


def test_parameters_that_share_a_storage_get_both_updates():
    theirs = torch.ones(2, dtype=torch.float64)
    known = [theirs.requires_grad_(), theirs.detach().requires_grad_()]
    ours = xgrad.ones(2, dtype=xgrad.float64)
    mine = [ours.requires_grad_(), ours.detach().requires_grad_()]
    for params, ones, optimizer in (
        (mine, xgrad.ones, Optimizer(mine, optax.sgd(0.25))),
        (known, torch.ones, torch.optim.SGD(known, 0.25)),
    ):
        for p in params:
            p.grad = ones(2, dtype=(xgrad if ones is xgrad.ones else torch).float64)
        optimizer.step()
    assert_same(mine, known)
    assert ours.tolist() == [0.5, 0.5]


@pytest.mark.eager("addresses")
def test_a_step_reuses_the_memory_of_parameters_and_state():
    params = parameters()
    optimizer = Optimizer(params, optax.adam(0.1))
    loss_of(*params).backward()
    optimizer.step()  # what the user made is copied once
    tensors = params + optimizer._states[0].tensors
    before = [t._held().unsafe_buffer_pointer() for t in tensors if t.ndim]
    optimizer.step()
    assert sorted(t._held().unsafe_buffer_pointer() for t in tensors if t.ndim) == sorted(before)


def test_arrays_that_others_hold_are_left_alone():
    params = parameters()
    params.append(xgrad.nn.Parameter(xgrad.ones(2, dtype=xgrad.float64)))
    optimizer = Optimizer(params, optax.adam(0.1))
    for p in params:
        p.grad = xgrad.ones(*p.shape, dtype=xgrad.float64)
    optimizer.step()
    held = [p.detach().numpy() for p in params], [jnp.asarray(p.detach()) for p in params], optimizer.state
    before = jax.tree.map(np.array, held)
    optimizer.step()
    optimizer.step()
    jax.tree.map(np.testing.assert_array_equal, held, before)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex128"])
def test_dtypes_stay(dtype):
    value = np.array([1.5, -2.0]) * (1 + 0.5j if dtype == "complex128" else 1)
    p = xgrad.tensor(value).to(getattr(xgrad, dtype)).requires_grad_()
    t = torch.tensor(value).to(getattr(torch, dtype)).requires_grad_()
    for T, param, optimizer in (
        (xgrad, p, Optimizer([p], optax.sgd(0.125, momentum=0.5))),
        (torch, t, torch.optim.SGD([t], 0.125, momentum=0.5)),
    ):
        for _ in range(3):
            optimizer.zero_grad()
            (T.abs(param) ** 2).sum().backward()
            optimizer.step()
    assert p.dtype == getattr(xgrad, dtype)
    np.testing.assert_allclose(
        np.asarray(p.detach()).astype(complex), t.detach().to(torch.complex128).numpy(), rtol=1e-2
    )


def test_a_state_takes_the_dtype_that_its_transformation_goes_on_in():
    p = xgrad.ones(2, dtype=xgrad.bfloat16, requires_grad=True)
    widened = optax.GradientTransformation(
        lambda params: [jnp.zeros_like(x) for x in params],
        lambda g, s, p=None: (g, [a + b.astype(jnp.float32) for a, b in zip(s, g)]),
    )
    optimizer = Optimizer([p], widened)
    p.grad = xgrad.ones(2, dtype=xgrad.bfloat16)
    optimizer.step()
    optimizer.step()
    assert optimizer.state[0][0].dtype == jnp.float32
    assert optimizer.state[0][0].tolist() == [2, 2]


def test_sparse_gradients_are_made_dense():
    weight = xgrad.ones(4, 2, dtype=xgrad.float64, requires_grad=True)
    optimizer = Optimizer([weight], optax.sgd(0.5))
    xgrad.nn.functional.embedding(xgrad.tensor([1, 1, 3]), weight, sparse=True).sum().backward()
    assert weight.grad.is_sparse
    optimizer.step()
    assert weight.tolist() == [[1, 1], [0, 0], [1, 1], [0.5, 0.5]]


def test_steps_under_every_grad_mode():
    for mode in (xgrad.no_grad, xgrad.enable_grad):
        (p, _) = parameters()
        optimizer = Optimizer([p], optax.sgd(1.0))
        p.grad = xgrad.ones(2, 3, dtype=xgrad.float64)
        with mode():
            assert optimizer.step() is None
        np.testing.assert_array_equal(p.detach(), VALUES[0] - 1)


def test_the_state_begins_when_the_first_step_is_taken():
    """Weights that are loaded after the optimizer was made count: schedule_free keeps a copy of the parameters."""
    p = xgrad.zeros(2, dtype=xgrad.float64, requires_grad=True)
    tx = optax.contrib.schedule_free(optax.sgd(0.5), 0.5)
    optimizer = Optimizer([p], tx)
    p.data = xgrad.ones(2, dtype=xgrad.float64)
    p.grad = xgrad.zeros(2, dtype=xgrad.float64)
    optimizer.step()
    assert optimizer.state[0].z[0].tolist() == [1, 1]
    assert p.tolist() == [1, 1]


# ---------------------------------------------------------------- groups


def test_groups_have_transformations_and_hyperparameters_of_their_own():
    a, b = parameters()
    optimizer = Optimizer([{"params": a, "tx": inject(), "learning_rate": 1.0}, {"params": [b]}], optax.sgd(0.5))
    for p in (a, b):
        p.grad = xgrad.ones(*p.shape, dtype=xgrad.float64)
    assert optimizer.param_groups[0]["learning_rate"] == 1.0
    optimizer.step()
    np.testing.assert_allclose(a.detach(), VALUES[0] - 1)
    np.testing.assert_allclose(b.detach(), VALUES[1] - 0.5)
    optimizer.param_groups[0]["learning_rate"] *= 0.25
    optimizer.step()
    np.testing.assert_allclose(a.detach(), VALUES[0] - 1.25)


def test_a_group_is_a_dictionary():
    (p, _) = parameters(values=[v.astype(np.float32) for v in VALUES])
    optimizer = Optimizer([{"params": [p], "initial": 3}], inject(momentum=0.9))
    (group,) = optimizer.param_groups
    assert isinstance(group, dict)
    assert set(group) == {"params", "tx", "initial", "learning_rate", "momentum"}
    assert group["params"] == [p]
    assert {**group}["learning_rate"] == dict(group)["learning_rate"] == group.get("learning_rate") == 0.1
    assert dict(group.items())["momentum"] == 0.9
    group.update(learning_rate=xgrad.tensor(0.5), initial=4)
    assert (group["learning_rate"], group["initial"], len(group)) == (0.5, 4, 5)
    assert group.setdefault("momentum", 7) == 0.9
    assert "'learning_rate': 0.5" in repr(group)
    assert "learning_rate: 0.5" in repr(optimizer)
    del group["initial"]
    assert "initial" not in group


def test_what_a_group_cannot_set():
    (p, b) = parameters()
    group = Optimizer([p], inject(learning_rate=optax.linear_schedule(0.1, 0, 5), momentum=0.5)).param_groups[0]
    plain = Optimizer([b], optax.sgd(0.1)).param_groups[0]
    for key, value, error, text in (
        ("learning_rate", 1.0, ValueError, "follows a schedule"),
        ("lr", 1.0, KeyError, "this group has 'learning_rate'"),
        ("params", [p], KeyError, "cannot be changed"),
        ("momentum", [1.0, 2.0], ValueError, "shape"),
        ("momentum", 1j, TypeError, "complex128"),
    ):
        with pytest.raises(error, match=text):
            group[key] = value
    for read in (lambda: plain["learning_rate"], lambda: plain["lr"], lambda: plain.update(learning_rate=1.0)):
        with pytest.raises(KeyError, match="inject_hyperparams"):
            read()
    assert group["momentum"] == 0.5


def test_hyperparameters_of_the_same_name_are_told_by_their_path():
    (p, _) = parameters()
    tx = optax.chain(inject(), inject(optax.adam))
    group = Optimizer([p], tx).param_groups[0]
    assert {"0.learning_rate", "1.learning_rate", "b1"} <= set(group)
    with pytest.raises(KeyError, match=r"'0\.learning_rate', '1\.learning_rate'"):
        group["learning_rate"] = 1


def test_a_schedule_is_seen_in_the_group():
    (p, _) = parameters()
    optimizer = Optimizer([p], inject(learning_rate=optax.linear_schedule(1.0, 0.0, 4)))
    seen = []
    for _ in range(3):
        p.grad = xgrad.ones(2, 3, dtype=xgrad.float64)
        optimizer.step()
        seen.append(optimizer.param_groups[0]["learning_rate"])
    assert seen == [1.0, 0.75, 0.5]


def test_groups_that_are_added():
    a, b = parameters()
    optimizer = Optimizer([a], optax.sgd(1.0))
    for p in (a, b):
        p.grad = xgrad.ones(*p.shape, dtype=xgrad.float64)
    optimizer.step()
    optimizer.add_param_group({"params": b, "tx": optax.sgd(0.5)})
    optimizer.step()
    np.testing.assert_array_equal(a.detach(), VALUES[0] - 2)
    np.testing.assert_array_equal(b.detach(), VALUES[1] - 0.5)


def test_names_are_what_masks_and_labels_refer_to():
    layer = xgrad.nn.Linear(2, 3)
    before = [p.detach().numpy() for p in layer.parameters()]
    tx = optax.partition({"a": optax.sgd(1.0), "b": optax.set_to_zero()}, {"weight": "a", "bias": "b"})
    optimizer = Optimizer(layer.named_parameters(), tx)
    assert optimizer.param_groups[0]["param_names"] == ["weight", "bias"]
    layer(xgrad.ones(1, 2)).sum().backward()
    optimizer.step()
    np.testing.assert_allclose(layer.weight.detach(), before[0] - 1)
    np.testing.assert_array_equal(layer.bias.detach(), before[1])
    layer.bias.grad = None
    optimizer.step()
    np.testing.assert_allclose(layer.weight.detach(), before[0] - 2, rtol=1e-6)


# ---------------------------------------------------------------- errors at the call


def theirs(make):
    """The type of torch's error, and its text."""
    with pytest.raises((TypeError, ValueError, KeyError)) as caught:
        make(torch, lambda params: torch.optim.SGD(params, 0.1))
    return caught.value


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda T, of: of([]), "optimizer got an empty parameter list"),
        (lambda T, of: of(T.ones(2)), "params argument given to the optimizer should be an iterable of Tensors"),
        (lambda T, of: of([3]), "optimizer can only optimize Tensors, but one of the params is"),
        (lambda T, of: of([T.ones(2, requires_grad=True) * 2]), "can't optimize a non-leaf Tensor"),
        (lambda T, of: of([{"params": {T.ones(1)}}]), "optimizer parameters need to be organized in ordered"),
        (lambda T, of: of([("a", T.ones(1)), T.ones(1)]), "Some param names are missing"),
        (lambda T, of: of([T.ones(1)]).add_param_group([T.ones(1)]), "param_group must be a dict"),
        (
            lambda T, of: of([T.ones(1)]).add_param_group({"params": [("a", T.ones(1))]}),
            "all optimizer param groups should be with/without names",
        ),
    ],
)  # fmt: skip
def test_errors_are_those_of_torch(make, text):
    known = theirs(make)
    assert text in str(known)
    with pytest.raises(type(known), match=text.replace("(", r"\(")):
        make(xgrad, lambda params: Optimizer(params, optax.sgd(0.1)))


def test_a_parameter_in_two_groups_is_an_error_and_twice_in_one_a_warning():
    a, _ = parameters()
    known = torch.ones(2, 3, requires_grad=True)
    with pytest.raises(ValueError, match="some parameters appear in more than one parameter group"):
        Optimizer([{"params": [a]}, {"params": [a]}], optax.sgd(0.1))
    with pytest.warns(UserWarning, match="duplicate parameters"):
        theirs = torch.optim.SGD([known, known], 0.25)
    with pytest.warns(UserWarning, match="duplicate parameters") as caught:
        ours = Optimizer([a, a], optax.sgd(0.25))
    assert caught[0].filename == __file__
    for p, T in ((a, xgrad), (known, torch)):
        p.data = T.ones(2, 3, dtype=T.float64)
        p.grad = T.ones(2, 3, dtype=T.float64)
    ours.step()
    theirs.step()
    assert_same([a], [known])


def test_transformations_that_are_none():
    a, _ = parameters()
    with pytest.raises(TypeError, match=r"needs tx, a transformation of optax's"):
        Optimizer([a])
    with pytest.raises(TypeError, match="call it with its hyperparameters first"):
        Optimizer([a], optax.adam)
    with pytest.raises(TypeError, match="but got float"):
        Optimizer([a], 0.1)
    with pytest.raises(ValueError, match="didn't specify a value of required optimization parameter tx"):
        Optimizer([{"params": [a]}])


def test_a_parameter_of_another_shape_is_an_error_that_changes_nothing():
    a, b = parameters()
    optimizer = Optimizer([a, b], optax.adam(0.1))
    a.data = xgrad.ones(4, dtype=xgrad.float64)
    a.grad = xgrad.ones(4, dtype=xgrad.float64)
    b.grad = xgrad.ones(3, dtype=xgrad.float64)
    with pytest.raises(RuntimeError, match=r"parameter 0 of group 0 has the shape \(4,\)"):
        optimizer.step()
    assert a.tolist() == [1] * 4
    np.testing.assert_array_equal(b.detach(), VALUES[1])


def test_inference_tensors_are_refused_outside_of_their_mode():
    with xgrad.inference_mode():
        p = xgrad.ones(2)
        g = xgrad.ones(2)
    optimizer = Optimizer([p], optax.sgd(1.0))
    p.grad = g
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        optimizer.step()
    assert p.tolist() == [1, 1]


# ---------------------------------------------------------------- hooks and lifetimes


def test_step_hooks_are_called_as_by_torch():
    def log_of(optimizer):
        log = []
        pre = optimizer.register_step_pre_hook(lambda o, args, kwargs: log.append(("pre", len(args), kwargs)))
        optimizer.register_step_pre_hook(lambda o, args, kwargs: (args, {}))
        optimizer.register_step_post_hook(lambda o, args, kwargs: log.append(("post", args[0] is o, kwargs)))
        optimizer.step()
        pre.remove()
        optimizer.step(lambda: log.append("closure"))
        optimizer.register_step_pre_hook(lambda o, args, kwargs: 3)
        with pytest.raises(RuntimeError, match=r"must return None or a tuple of \(new_args, new_kwargs\)"):
            optimizer.step()
        return log

    assert log_of(Optimizer(parameters(), optax.sgd(0.1))) == log_of(torch.optim.SGD(parameters(torch), 0.1))


def test_dropping_the_optimizer_frees_its_state():
    params = parameters()
    optimizer = Optimizer(params, optax.adam(0.1))
    loss_of(*params).backward()
    optimizer.step()
    alive = [weakref.ref(optimizer), *(weakref.ref(t) for t in optimizer._states[0].tensors)]
    gc.collect()
    gc.disable()
    try:
        del optimizer
        assert [r() for r in alive if r() is not None] == []
    finally:
        gc.enable()


@pytest.mark.eager("lifetimes")
def test_a_step_leaves_nothing_of_a_parameter_behind():
    params = parameters()
    optimizer = Optimizer(params, optax.sgd(0.1))
    loss_of(*params).backward()
    optimizer.step()
    old = weakref.ref(params[0]._array)
    params[0].data = xgrad.zeros(2, 3, dtype=xgrad.float64)
    assert old() is None
    optimizer.step()
    assert params[0].detach().abs().max().item() > 0


@pytest.mark.eager("launches")
@pytest.mark.one_in(2)
@pytest.mark.parametrize("device", [None, "cpu:0", "cpu:1"])
def test_steps_are_compiled_once(device):
    params = [xgrad.tensor(v, device=device, requires_grad=True) for v in VALUES]
    optimizer = Optimizer(params, inject(optax.adam))
    for p in params:
        p.grad = xgrad.ones(*p.shape, dtype=xgrad.float64).to(p.device) if device else xgrad.ones_like(p)
    for i in range(3):
        optimizer.step()
        optimizer.param_groups[0]["learning_rate"] = 0.1 / (i + 1)
        optimizer.load_state_dict(optimizer.state_dict())
    (((update, _),),) = optimizer._updates.values()
    (program,) = update.programs.values()
    compiled = program.donating.jitted._cache_size()
    assert compiled <= 1  # 0: the process has run so many programs that JAX let this one go


def test_parameters_on_a_declared_backend_are_refused():
    chip = xgrad.Backend("chip")
    optimizer = Optimizer(parameters(), optax.sgd(0.1))
    for make in (Optimizer, lambda params, tx: optimizer.add_param_group({"params": params, "tx": tx})):
        with pytest.raises(NotImplementedError, match=r"declared backend chip.*xgrad\.optim"):
            make([xgrad.ones(2, device=chip, requires_grad=True)], optax.sgd(0.1))
    assert len(optimizer.param_groups) == 1
