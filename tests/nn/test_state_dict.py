"""The hooks of saving and loading, the parts that classes override, and the hooks of all modules, against torch's."""

import copy
import importlib
import pickle

import pytest
import torch

import xgrad

from ..oracle import as_torch, data, same, same_error


def layer(T, seed=0):
    """A Linear in the dtype of the tests, with the same weights in both libraries."""
    m = T.nn.Linear(2, 2).double()
    with T.no_grad():
        m.weight.copy_(data(T, (2, 2), seed))
        m.bias.copy_(data(T, (2,), seed))
    return m


def two(T):
    return T.nn.Sequential(layer(T, 1), T.nn.Sequential(layer(T, 2)))


def metadata(T):
    return [(k, dict(v)) for k, v in two(T).state_dict()._metadata.items()]


def post_hook(T):
    m = two(T)

    def rename(module, state, prefix, local_metadata):
        local_metadata["seen"] = prefix
        state[prefix + "w"] = state.pop(prefix + "weight")

    m[1][0].register_state_dict_post_hook(rename)
    state = m.state_dict()
    return list(state), state._metadata["1.0"]


def old_post_hook(T):
    m = two(T)
    m._register_state_dict_hook(lambda module, state, prefix, about: {k + "!": v for k, v in state.items()})
    handle = m[0]._register_state_dict_hook(lambda *a: {"ignored": 1})
    first = list(m.state_dict())
    handle.remove()
    return first, list(m.state_dict())


def pre_hook(T):
    m, seen = two(T), []
    m[0].register_state_dict_pre_hook(lambda module, prefix, keep: seen.append((prefix, keep, module is m[0])))
    m.state_dict()
    m.state_dict(prefix="a.", keep_vars=True)
    return seen


def load_pre_hooks(T):
    m, seen = two(T), []

    def upgrade(module, state, prefix, about, strict, missing, unexpected, errors):
        seen.append((prefix, about.get("version"), strict, module is m[0]))
        state[prefix + "weight"] = state.pop(prefix + "old")

    m[0].register_load_state_dict_pre_hook(upgrade)
    m[1]._register_load_state_dict_pre_hook(lambda state, prefix, *rest: seen.append((prefix, len(rest))))
    state = m.state_dict()
    state["0.old"] = state.pop("0.weight") * 2
    told = m.load_state_dict(state)
    return repr(told), seen, m[0].weight, list(state)


def load_post_hook(T):
    m = two(T)
    m.register_load_state_dict_post_hook(lambda module, keys: keys.missing_keys.clear())
    return repr(m.load_state_dict({"0.bias": T.ones(2).double()})), m[0].bias


def extra_state(T):
    class Extra(T.nn.Module):
        def __init__(self, n):
            super().__init__()
            self.n = n

        def get_extra_state(self):
            return {"n": self.n}

        def set_extra_state(self, state):
            self.n = state["n"]

    a, b = T.nn.Sequential(Extra(1)), T.nn.Sequential(Extra(2))
    state = a.state_dict()
    b.load_state_dict(state)
    lacking = b.load_state_dict({}, strict=False).missing_keys
    return list(state.items()), b[0].n, lacking, two(T).load_state_dict(state, strict=False).unexpected_keys


def overridden(T):
    class Old(T.nn.Linear):
        _version = 2

        def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
            if local_metadata.get("version", 1) < 2:
                state_dict[prefix + "weight"] = state_dict[prefix + "weight"] + 1
            super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

        def _save_to_state_dict(self, destination, prefix, keep_vars):
            super()._save_to_state_dict(destination, prefix, keep_vars)
            destination[prefix + "bias"] = destination[prefix + "bias"] * 0

    m = T.nn.Sequential(Old(2, 2).double())
    state = two(T).state_dict()
    m.load_state_dict({k: state[k] for k in ("0.weight", "0.bias")})
    first = m[0].weight.detach().clone()
    m.load_state_dict(m.state_dict())
    return first, m[0].weight, m[0].bias, m.state_dict()._metadata["0"]


def partial(T):
    m = two(T)
    state = m.state_dict()
    state = {k: v + 1 for k, v in state.items()}
    state["1.0.bias"] = T.ones(3).double()
    with pytest.raises(RuntimeError):
        m.load_state_dict(state)
    return list(m.parameters())


def scalar_of_old_versions(T):
    m = T.nn.Module()
    m.register_buffer("n", T.tensor(1.0))
    m.load_state_dict({"n": T.tensor([3.0])})
    return m.n


def assigned(T):
    m = two(T)
    frozen = T.nn.Parameter(T.ones(2, 2).double(), requires_grad=False)
    told = m.load_state_dict({"0.weight": frozen, "0.bias": T.ones(2).double()}, strict=False, assign=True)
    return m[0].weight is frozen, frozen.requires_grad, m[0].bias, m[0].bias.requires_grad, len(told.missing_keys)


def positional(T):
    state = {}
    two(T).state_dict(destination=state, prefix="p.", keep_vars=True)
    return list(state), [v.requires_grad for v in state.values()]


def submodules(T):
    m = two(T)
    m.set_submodule("1.0", layer(T, 3))
    m.set_submodule("1.new", layer(T, 4))
    return [n for n, _ in m.named_parameters()], m[1][0].weight


LATER = ["_state_dict_pre_hooks", "_load_state_dict_post_hooks", "_backward_pre_hooks", "_forward_hooks_with_kwargs"]


def set_state(T):
    m = two(T)
    state = {k: v for k, v in m.__dict__.items() if k not in LATER}
    new = T.nn.Sequential.__new__(T.nn.Sequential)
    new.__setstate__(state)
    return new(T.ones(1, 2).double()), list(new.state_dict())


def copied_hooks(T):
    m = two(T)
    m.register_load_state_dict_pre_hook(Doubling())
    twin = copy.deepcopy(m)
    twin.load_state_dict(two(T).state_dict())
    return twin[0].weight, m[0].weight, list(pickle.loads(pickle.dumps(m)).state_dict())


class Doubling:
    def __call__(self, module, state, prefix, *rest):
        state["0.weight"] = module[0].weight.detach() * 2


def arguments(T):
    class Mixed:
        def __init__(self, a, b=2):
            self.sum = a + b

    class Both(T.nn.Module, Mixed):
        call_super_init = True

        def __init__(self):
            super().__init__(1, b=5)

    return Both().sum, isinstance(Both()._buffers, dict)


PROGRAMS = (
    metadata, post_hook, old_post_hook, pre_hook, load_pre_hooks, load_post_hook, extra_state, overridden, partial,
    scalar_of_old_versions, assigned, positional, submodules, set_state, copied_hooks, arguments,
)  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_states_are_saved_and_loaded_as_in_torch(program):
    as_torch(program)


def the_post_hook_twice(T):
    def hook(*args):
        pass

    m = two(T)
    m.register_state_dict_post_hook(hook)
    m._register_state_dict_hook(hook)


def returning_post_hook(T):
    m = two(T)
    m.register_state_dict_post_hook(lambda *a: {})
    m.state_dict()


ERRORS = {
    "registered as both": (the_post_hook_twice, "Cannot register the same function"),
    "post-hook that returns": (returning_post_hook, "post-hook must return None"),
    "no name": (lambda T: two(T).set_submodule("", layer(T)), "without a target name"),
    "no module": (lambda T: two(T).set_submodule("0", 3), "is not an nn.Module"),
    "not there": (lambda T: two(T).set_submodule("0.x", layer(T), strict=True), "has no attribute `x`"),
    "a parameter": (lambda T: two(T).set_submodule("0.weight", layer(T)), "`weight` is not an nn.Module"),
    "arguments": (lambda T: T.nn.Module(a=1), "unexpected keyword argument 'a'"),
    "both kinds": (
        lambda T: [m := layer(T), m.register_full_backward_hook(print), m.register_backward_hook(print)],
        "Cannot use both regular",
    ),
}


@pytest.mark.parametrize(("program", "match"), ERRORS.values(), ids=ERRORS)
def test_errors_say_what_torch_says(program, match):
    same_error(program, match)


def global_hooks(T):
    of = importlib.import_module(f"{T.__name__}.nn.modules.module")
    m, seen = two(T), []
    note = lambda what: lambda module, *a: seen.append((what, type(module).__name__, len(a)))  # noqa: E731
    handles = [
        of.register_module_forward_pre_hook(note("pre")),
        of.register_module_forward_hook(note("forward")),
        of.register_module_forward_hook(note("kwargs"), with_kwargs=True),
        of.register_module_full_backward_pre_hook(note("backward pre")),
        of.register_module_full_backward_hook(note("backward")),
    ]
    try:
        m(data(T, (1, 2), requires_grad=True)).sum().backward()
    finally:
        for handle in handles:
            handle.remove()
    n = len(seen)
    m(data(T, (1, 2)))
    return seen, len(seen) == n


def registrations(T):
    of = importlib.import_module(f"{T.__name__}.nn.modules.module")
    seen = []
    handles = [
        of.register_module_parameter_registration_hook(lambda m, name, p: seen.append(name)),
        of.register_module_buffer_registration_hook(lambda m, name, b: b + 1),
        of.register_module_module_registration_hook(lambda m, name, x: seen.append((name, type(x).__name__))),
    ]
    try:
        m = T.nn.Sequential(T.nn.Linear(1, 1))
        m.register_buffer("count", T.zeros(1))
    finally:
        for handle in handles:
            handle.remove()
    return seen, m.count


def old_backward_hook(T):
    m, seen = layer(T), []
    m.register_backward_hook(lambda module, gi, go: seen.append((module is m, go[0])))
    m(data(T, (1, 2))).sum().backward()
    return seen


@pytest.mark.filterwarnings("ignore:Using a non-full backward hook")
@pytest.mark.parametrize("program", [global_hooks, registrations, old_backward_hook], ids=lambda p: p.__name__)
def test_hooks_of_all_modules(program):
    as_torch(program)


def test_a_compiled_module_gives_the_same_and_is_copied_without_the_program():
    m = two(xgrad)
    x = data(xgrad, (1, 2), requires_grad=True)
    expected = m(x)
    m.compile()
    found = m(x)
    assert bool((expected == found).all())
    assert type(m._compiled_call_impl).__name__ == "CompiledFunction"
    found.sum().backward()
    assert m[0].weight.grad is not None
    assert copy.deepcopy(m)._compiled_call_impl is None


def test_what_processes_share_is_refused_and_to_empty_keeps_shapes():
    with pytest.raises(NotImplementedError, match="cannot be shared"):
        two(xgrad).share_memory()
    as_torch(lambda T: [tuple(p.shape) for p in two(T).to_empty(device="cpu").parameters()])
    assert torch.nn.Module.share_memory


@pytest.mark.parametrize("assign", [False, True])
def test_a_state_of_torch_is_loaded_as_it_is(assign):
    theirs, ours = two(torch), two(xgrad)
    state = theirs.state_dict()
    state["0.weight"] = state["0.weight"].T * 2
    assert repr(ours.load_state_dict(state, assign=assign)) == "<All keys matched successfully>"
    same(ours[0].weight, state["0.weight"])
    state["0.weight"].zero_()
    assert bool((ours[0].weight != 0).all())
    assert isinstance(ours[0].weight, xgrad.nn.Parameter)
    assert ours[0].weight.requires_grad
