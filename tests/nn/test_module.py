"""Module and its containers against torch's."""

import copy
import operator
import pickle
from collections import OrderedDict

import pytest
import torch

import xgrad

from ..oracle import as_torch, data, same_error


def net(T):
    """A module with everything: parameters, buffers, None, modules in modules, a shared one."""
    nn = T.nn

    class Part(nn.Module):
        def __init__(self, seed):
            super().__init__()
            self.w = nn.Parameter(data(T, (2, 2), seed))
            self.register_parameter("none", None)

        def forward(self, x):
            return x @ self.w

        def extra_repr(self):
            return "two by two"

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = Part(1)
            self.register_buffer("count", T.zeros(1))
            self.register_buffer("cache", T.zeros(1), persistent=False)
            self.both = nn.Sequential(Part(2), nn.Sequential(Part(3)))
            self.again = self.first
            self.scale = nn.Parameter(data(T, (2,), 4))
            self.plain = 3
            self.nothing = None

        def forward(self, x):
            self.count += 1
            return self.both(self.first(x)) * self.scale

    return Net()


TREE = {
    "parameters": lambda T, m: [n for n, _ in m.named_parameters()],
    "parameters twice": lambda T, m: [n for n, _ in m.named_parameters(remove_duplicate=False)],
    "own parameters": lambda T, m: [n for n, _ in m.named_parameters(recurse=False)],
    "prefixed": lambda T, m: [n for n, _ in m.named_parameters(prefix="a")],
    "count of parameters": lambda T, m: len(list(m.parameters())),
    "buffers": lambda T, m: [n for n, _ in m.named_buffers()],
    "modules": lambda T, m: [(n, type(x).__name__) for n, x in m.named_modules()],
    "modules twice": lambda T, m: [n for n, _ in m.named_modules(remove_duplicate=False)],
    "children": lambda T, m: [n for n, _ in m.named_children()],
    "repr": lambda T, m: repr(m),
    "state": lambda T, m: dict(m.state_dict(prefix="p.")),
    "state's kinds": lambda T, m: [(t.requires_grad, isinstance(t, T.nn.Parameter)) for t in m.state_dict().values()],
    "kept vars": lambda T, m: [t.requires_grad for t in m.state_dict(keep_vars=True).values()],
    "submodule": lambda T, m: m.get_submodule("both.1.0") is m.both[1][0],
    "parameter": lambda T, m: m.get_parameter("both.1.0.w") is m.both[1][0].w,
    "buffer": lambda T, m: m.get_buffer("count") is m.count,
    "training": lambda T, m: [x.training for x in m.eval().modules()] + [x.training for x in m.train().modules()],
    "frozen": lambda T, m: [p.requires_grad for p in m.requires_grad_(False).parameters()],
    "applied": lambda T, m: (lambda seen: [m.apply(lambda x: seen.append(type(x).__name__)), seen][1])([]),
    "dir": lambda T, m: [n in dir(m) for n in ("scale", "first", "count", "forward", "plain")],
    "cast": lambda T, m: [str(t.dtype)[-3:] for t in m.half().state_dict().values()],
    "cast device": lambda T, m: [str(t.dtype)[-3:] for t in m.to("cpu", T.float32).state_dict().values()],
    "cast as a tensor": lambda T, m: [str(t.dtype)[-3:] for t in m.to(T.ones(1, dtype=T.float16)).parameters()],
    "integer buffers stay": lambda T, m: [m.register_buffer("i", T.arange(2)), str(m.half().i.dtype)[-5:]][1],
    "deleted": lambda T, m: [delattr(m, "scale"), delattr(m, "count"), delattr(m, "again"), list(m.state_dict())],
    "replaced by a parameter": lambda T, m: [setattr(m, "plain", T.nn.Parameter(T.ones(1))), list(m.state_dict())],
    "emptied": lambda T, m: [setattr(m, "scale", None), setattr(m, "first", None), list(m.state_dict()), m.scale],
    "buffer by assignment": lambda T, m: [setattr(m, "count", T.ones(2)), m.state_dict()["count"]],
    "module in place of a buffer": lambda T, m: [setattr(m, "count", T.nn.Linear(1, 1)), list(m.state_dict())],
    "parameter in place of a module": lambda T, m: [setattr(m, "first", T.nn.Parameter()), list(m.state_dict())],
    "Buffer": lambda T, m: [setattr(m, "new", T.nn.Buffer(T.ones(1), persistent=False)), list(m.state_dict()), m.new],
    "result": lambda T, m: m(data(T, (1, 2))),
}  # fmt: skip


@pytest.mark.one_in(2)
@pytest.mark.parametrize("look", TREE.values(), ids=TREE)
def test_tree_and_state_are_those_of_torch(look):
    as_torch(lambda T: look(T, net(T)))


ERRORS = {
    "no parameter": (lambda T, m: m.register_parameter("p", T.ones(1)), "cannot assign .* object to parameter 'p'"),
    "dot": (lambda T, m: m.register_parameter("a.b", None), "parameter name can.*t contain"),
    "empty": (lambda T, m: m.register_buffer("", None), "buffer name can.*t be empty string"),
    "taken": (lambda T, m: m.register_parameter("first", None), "attribute 'first' already exists"),
    "taken by a method": (lambda T, m: m.add_module("forward", None), "attribute 'forward' already exists"),
    "no string": (lambda T, m: m.register_module(3, None), "module name should be a string. Got int"),
    "no buffer": (lambda T, m: m.register_buffer("b", 3), "cannot assign 'int' object to buffer 'b'"),
    "no module": (lambda T, m: m.add_module("x", 3), "int is not a Module subclass"),
    "tensor for a parameter": (lambda T, m: setattr(m, "scale", T.ones(2)), "as parameter 'scale'"),
    "module for a parameter": (lambda T, m: setattr(m, "scale", T.nn.Linear(1, 1)), "as parameter 'scale'"),
    "tensor for a module": (lambda T, m: setattr(m, "first", T.ones(1)), "as child module 'first'"),
    "Buffer for a module": (lambda T, m: setattr(m, "first", T.nn.Buffer()), "as child module 'first'"),
    "number for a module": (lambda T, m: setattr(m, "first", 3), "as child module 'first'"),
    "number for a buffer": (lambda T, m: setattr(m, "count", 3), "as buffer 'count'"),
    "unknown": (lambda T, m: m.unknown, "object has no attribute 'unknown'"),
    "unknown deleted": (lambda T, m: delattr(m, "unknown"), "has no attribute 'unknown'"),
    "no forward": (lambda T, m: T.nn.Module()(1), 'missing the required "forward" function'),
    "no such submodule": (lambda T, m: m.get_submodule("both.5"), "has no attribute `5`"),
    "no submodule": (lambda T, m: m.get_submodule("count"), "`count` is not an nn.Module"),
    "no such parameter": (lambda T, m: m.get_parameter("first.x"), "has no attribute `x`"),
    "not a parameter": (lambda T, m: m.get_parameter("count"), "`count` is not an nn.Parameter"),
    "not a buffer": (lambda T, m: m.get_buffer("scale"), "`scale` is not a buffer"),
    "mode": (lambda T, m: m.train(3), "training mode is expected to be boolean"),
    "integers": (lambda T, m: m.to(T.int32), "only accepts floating point or complex dtypes"),
    "state of a type": (lambda T, m: m.load_state_dict(3), "Expected state_dict to be dict-like"),
    "arguments": (lambda T, m: T.nn.Module(3), "__init__"),
    "hook": (lambda T, m: m(T.ones(3)), "."),
    "list index": (lambda T, m: m.both[5], "index 5 is out of range"),
    "list of what": (lambda T, m: T.nn.ModuleList([3]), "int is not a Module subclass"),
    "extend": (lambda T, m: T.nn.ModuleList().extend(3), "should be called with an iterable, but got int"),
    "called parameters": (lambda T, m: T.nn.ParameterList()(1), "ParameterList should not be called"),
    "times nothing": (lambda T, m: m.both * 0, "Non-positive multiplication factor 0"),
    "times a string": (lambda T, m: m.both * "a", "unsupported operand type"),
    "inserted too far": (lambda T, m: m.both.insert(5, T.nn.Linear(1, 1)), "out of range"),
    "called list": (lambda T, m: T.nn.ModuleList()(1), 'missing the required "forward" function'),
    "parameters of an iterable": (lambda T, m: T.nn.ParameterList().extend(3), "should be called with an iterable"),
    "dict of what": (lambda T, m: T.nn.ModuleDict(3), "should be called with an iterable of key/value pairs"),
}  # fmt: skip


@pytest.mark.parametrize(("program", "match"), ERRORS.values(), ids=ERRORS)
def test_errors_say_what_torch_says(program, match):
    same_error(lambda T: program(T, net(T)), match)


@pytest.mark.parametrize("value", ["Parameter", "Linear", "Buffer"])
def test_assignment_before_init_is_an_error(value):
    def program(T):
        class Early(T.nn.Module):
            def __init__(self):
                self.x = {"Parameter": T.nn.Parameter, "Buffer": T.nn.Buffer}.get(value, lambda: T.nn.Linear(1, 1))()

        Early()

    same_error(program, r"cannot assign \w+ before Module.__init__\(\) call")


def test_state_is_loaded_into_the_same_objects():
    def program(T):
        m, other = net(T), net(T)
        state = {n: t + 1 for n, t in other.state_dict().items()}
        before = m.scale
        kept = m.state_dict()["scale"]
        told = repr(m.load_state_dict(state))
        return told, m.scale is before, kept, dict(m.state_dict()), m.scale.requires_grad, m.scale.is_leaf

    as_torch(program)


def test_state_is_put_in_place_by_assign():
    def program(T):
        m = net(T)
        state = {n: T.ones_like(t) for n, t in m.state_dict().items()}
        before = m.scale
        m.load_state_dict(state, assign=True)
        m.scale.data.add_(1)
        return m.scale is before, isinstance(m.scale, T.nn.Parameter), state["scale"], m.count is state["count"]

    as_torch(program)


def wrong_state(T, m):
    state = OrderedDict(m.state_dict())
    del state["scale"], state["both.0.w"]
    state["more"], state["most"] = T.ones(1), T.ones(1)
    state["first.w"] = T.ones(3, 3)
    state["count"] = 3
    return state


def test_all_that_is_wrong_with_a_state_is_listed():
    def program(T):
        m = net(T)
        m.load_state_dict(wrong_state(T, m))

    ours = same_error(program, "Error.s. in loading state_dict")
    with pytest.raises(RuntimeError) as theirs:
        program(torch)
    said = str(theirs.value).replace("torch.", "xgrad.").split("\n")
    assert [line[:60] for line in str(ours).split("\n")] == [line[:60] for line in said]
    same_error(lambda T: net(T).load_state_dict({"first.w": T.ones(1)}, strict=False), "size mismatch for first.w")


def test_what_is_missing_or_too_much_is_returned_unless_strict():
    def program(T):
        m = net(T)
        found = m.load_state_dict({"scale": T.ones(2), "x": 1}, strict=False)
        return found.missing_keys, found.unexpected_keys, repr(found), m.scale

    as_torch(program)


@pytest.mark.parametrize("way", [copy.deepcopy, copy.copy])
def test_copies_of_a_module(way):
    def program(T):
        m = net(T)
        m(data(T, (1, 2))).sum().backward()
        twin = way(m)
        twin.scale.data.zero_()
        result = twin(T.ones(1, 2).double())
        return twin.scale is m.scale, m.scale, twin.first is twin.again, twin.scale.grad is None, result

    as_torch(program)


def test_a_module_is_pickled():
    def program(T):
        nn = T.nn
        m = nn.Sequential(nn.Linear(2, 2), nn.ParameterList([T.ones(1)]), nn.ModuleDict({"a": nn.Linear(1, 1)}))
        twin = pickle.loads(pickle.dumps(m))
        same = [bool((a == b).all()) for a, b in zip(m.parameters(), twin.parameters())]
        return same, repr(twin) == repr(m), [isinstance(p, T.nn.Parameter) for p in twin.parameters()]

    as_torch(program)


def test_moving_keeps_parameters_and_their_gradients():
    def program(T):
        m = net(T)
        p = m.scale
        m(data(T, (1, 2))).sum().backward()
        m.float()
        m(data(T, (1, 2)).to(T.float32)).sum().backward()
        return p is m.scale, str(p.dtype)[-7:], str(p.grad.dtype)[-7:], p.grad.sum().item() != 0

    as_torch(program)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_zero_grad(set_to_none):
    def program(T):
        m = net(T)
        m(data(T, (1, 2))).sum().backward()
        grad = m.scale.grad
        m.zero_grad(set_to_none=set_to_none)
        return grad, m.scale.grad, m.scale.grad is grad

    as_torch(program)


def containers(T):
    nn = T.nn
    return {
        "sequential": nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 2)),
        "named": nn.Sequential(OrderedDict(a=nn.Linear(1, 1), b=nn.Linear(1, 2))),
        "list": nn.ModuleList([nn.Linear(1, 1), nn.Linear(1, 1), nn.Linear(1, 2)]),
        "dict": nn.ModuleDict({"a": nn.Linear(1, 1), "b": nn.Sequential()}),
        "parameters": nn.ParameterList([T.ones(2, 3), nn.Parameter(T.ones(())), 3]),
        "parameter dict": nn.ParameterDict({"a": T.ones(2), "b": 5}),
        "empty": nn.ModuleList(),
    }


CONTAINERS = {
    "repr": lambda T, c: [repr(m).replace("torch.f", "xgrad.f") for k, m in c.items() if k != "parameter dict"],
    "len": lambda T, c: [len(m) for m in c.values()],
    "times": lambda T, c: [list((c["sequential"] * 2).state_dict()), list((2 * c["sequential"]).state_dict())],
    "times in place": lambda T, c: list(operator.imul(c["sequential"], 3).state_dict()),
    "one parameter": lambda T, c: repr(T.nn.ParameterList([T.ones(2, 3)])).replace("torch.f", "xgrad.f"),
    "from keys": lambda T, c: [(k, v) for k, v in T.nn.ParameterDict().fromkeys(["a", "b"], T.ones(1)).items()],
    "joined": lambda T, c: list(c["parameter dict"].__ror__(T.nn.ParameterDict({"first": T.ones(1)})).keys()),
    "names": lambda T, c: [list(m.state_dict()) for m in c.values()],
    "slices": lambda T, c: [repr(c[k][1:]) for k in ("sequential", "named", "list")] + [len(c["parameters"][:2])],
    "negative": lambda T, c: [c["list"][-1].out_features, c["parameters"][-1]],
    "append": lambda T, c: [list(c[k].append(T.nn.Linear(3, 3)).state_dict()) for k in ("sequential", "list")],
    "insert": lambda T, c: [c["list"].insert(0, T.nn.Linear(3, 3)), repr(c["list"])],
    "insert into a sequence": lambda T, c: repr(c["sequential"].insert(1, T.nn.Linear(3, 3))),
    "delete": lambda T, c: [c["list"].__delitem__(0), repr(c["list"])],
    "delete the last": lambda T, c: [c["sequential"].__delitem__(-1), repr(c["sequential"])],
    "pop": lambda T, c: [repr(c["list"].pop(1)), repr(c["dict"].pop("a")), len(c["list"]), len(c["dict"])],
    "set": lambda T, c: [c["list"].__setitem__(0, T.nn.Linear(5, 5)), repr(c["list"])],
    "add": lambda T, c: [repr(c["sequential"] + c["sequential"]), len(c["list"] + [T.nn.Linear(1, 1)])],
    "dict": lambda T, c: [list(c["dict"]), "a" in c["dict"], list(c["dict"].keys()), len(list(c["dict"].items()))],
    "parameters": lambda T, c: [isinstance(p, T.nn.Parameter) for p in c["parameters"]],
    "set parameter": lambda T, c: [c["parameters"].__setitem__(2, T.ones(1)), list(c["parameters"].state_dict())],
    "grown parameters": lambda T, c: list((c["parameters"].append(T.ones(1))).state_dict()),
    "parameter dict": lambda T, c: [
        next(iter(c["parameter dict"].items()))[1], c["parameter dict"].get("x"), "a" in c["parameter dict"],
        c["parameter dict"].pop("b"), list(c["parameter dict"]), c["parameter dict"].setdefault("q", 3),
        list(reversed(c["parameter dict"].copy())),
    ],
    "chain": lambda T, c: c["sequential"](T.ones(4, 1)).shape[1],
}  # fmt: skip


@pytest.mark.one_in(4)
@pytest.mark.parametrize("look", CONTAINERS.values(), ids=CONTAINERS)
def test_containers_are_those_of_torch(look):
    as_torch(lambda T: look(T, containers(T)))


@pytest.mark.exhaustive
def test_linear_is_drawn_and_computes_as_torch_does():
    m = xgrad.nn.Linear(16, 200)
    assert 0.2 < float(m.weight.abs().max()) <= 0.25
    assert abs(float(m.weight.mean())) < 0.02
    x = xgrad.ones(2, 16)
    assert bool((m(x) == xgrad.nn.functional.linear(x, m.weight, m.bias)).all())
    assert xgrad.nn.Linear(1, 1, bias=False).bias is None
    assert repr(xgrad.nn.Linear(1, 2, bias=False)) == repr(torch.nn.Linear(1, 2, bias=False))


@pytest.mark.exhaustive
def test_training_a_module_follows_torch():
    def program(T):
        m = net(T)
        x, y = data(T, (4, 2), 7), data(T, (4, 2), 8)
        losses = []
        for _ in range(5):
            m.zero_grad()
            loss = ((m(x) - y) ** 2).mean()
            loss.backward()
            with T.no_grad():
                for p in m.parameters():
                    p -= 0.1 * p.grad
            losses.append(loss.item())
        return losses, m.scale, m.count

    as_torch(program)


def test_other_tensors_take_the_place_of_parameters_for_a_while():
    from xgrad.nn.utils.stateless import reparametrized

    m = net(xgrad)
    x = data(xgrad, (1, 2))
    own, scale = m(x), m.scale
    other = data(xgrad, (2,), 9, requires_grad=True)
    count = xgrad.zeros(1)
    with reparametrized(m, {"scale": other, "count": count, "unknown": count}) as after:
        y = m(x)
        m.count = m.count + 5
    y.sum().backward()
    assert other.grad is not None
    assert scale.grad is None
    assert m.scale is scale
    assert (count.tolist(), after["count"].tolist(), m.count.tolist()) == ([1.0], [6.0], [1.0])
    assert list(after) == ["scale", "count"]
    assert bool((m(x) == own).all())


def test_shared_tensors_are_replaced_under_all_their_names():
    from xgrad.nn.utils.stateless import reparametrized

    m = net(xgrad)
    new = xgrad.zeros(2, 2).double()
    with reparametrized(m, {"first.w": new}):
        assert m.again.w is new
    m.twin = m.scale
    with reparametrized(m, {"scale": new}):
        assert m.twin is new
    with reparametrized(m, {"scale": new}, tie_weights=False):
        assert m.twin is not new
    with pytest.raises(ValueError, match="stand for one tensor"), reparametrized(m, {"scale": new, "twin": new + 1}):
        pass
    with pytest.raises(RuntimeError, match="unexpected keys"), reparametrized(m, {"x": new}, strict=True):
        pass
    with pytest.raises(ZeroDivisionError), reparametrized(m, {"scale": new}):
        raise ZeroDivisionError
    assert m.scale is m.twin
    assert m.scale is not new
