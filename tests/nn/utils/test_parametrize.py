"""Parametrizations, and the hooks of weight_norm and spectral_norm, against torch's."""

import copy
import importlib
import pickle

import pytest
import torch

import xgrad

from ...oracle import as_torch, data, same_error


def of(T, name="parametrize"):
    return importlib.import_module(f"{T.__name__}.nn.utils.{name}")


def layer(T, n=2, m=3):
    made = T.nn.Linear(n, m).double()
    with T.no_grad():
        made.weight.copy_(data(T, (m, n), 1))
        made.bias.copy_(data(T, (m,), 2))
    return made


def classes(T):
    class Symmetric(T.nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).T

        def right_inverse(self, a):
            return a.triu()

    class Double(T.nn.Module):
        def forward(self, x):
            return 2 * x

    class Product(T.nn.Module):
        def forward(self, a, b):
            return a * b

        def right_inverse(self, x):
            return x * 2, x * 0 + 0.5

    class Row(T.nn.Module):
        def forward(self, x):
            return x[:1]

    class Other(T.nn.Module):
        def forward(self, x):
            return x.to(T.float32)

    return Symmetric, Double, Product, Row, Other


def square(T, i):
    return of(T).register_parametrization(layer(T, 2, 2), "weight", classes(T)[i]())


def used(T, m):
    """Result, gradients and names of a module."""
    out = m(data(T, (2, m.in_features), 7))
    m.zero_grad()
    (out * out).sum().backward()
    named = [(n, p, p.grad) for n, p in m.named_parameters()]
    return out, named, dict(m.state_dict()), repr(m), type(m).__name__


def one(T):
    m = square(T, 0)
    first = used(T, m)
    m.weight = T.ones(2, 2).double()
    return first, m.weight, m.parametrizations.weight.original


def several(T):
    m = square(T, 2)
    first = used(T, m)
    m.weight = T.ones(2, 2).double()
    return first, m.weight, list(m.parameters())


def chain(T):
    m = of(T).register_parametrization(square(T, 0), "weight", classes(T)[1]())
    return used(T, m), m.weight, len(m.parametrizations.weight)


def removed(T, leave, i):
    m = square(T, i)
    held = next(iter(m.parametrizations.weight.parameters()))
    of(T).remove_parametrizations(m, "weight", leave)
    return used(T, m), isinstance(m.weight, T.nn.Parameter), m.weight is held


def two_names(T):
    m = of(T).register_parametrization(square(T, 0), "bias", classes(T)[1]())
    first = used(T, m)
    of(T).remove_parametrizations(m, "weight")
    return first, used(T, m), of(T).is_parametrized(m), of(T).is_parametrized(m, "weight")


def buffers(T):
    m = T.nn.Module()
    m.register_buffer("b", T.ones(2))
    of(T).register_parametrization(m, "b", classes(T)[1]())
    first = m.b, list(m.state_dict())
    of(T).remove_parametrizations(m, "b")
    return first, m.b, dict(m.named_buffers())


def unsafe(T):
    m = of(T).register_parametrization(layer(T, 2, 2), "weight", classes(T)[3](), unsafe=True)
    return m.weight


def caching(T):
    m = square(T, 0)
    with of(T).cached():
        inside = m.weight is m.weight
        with of(T).cached():
            pass
        inside = inside and m.weight is m.weight
    return inside, m.weight is m.weight


def copied(T):
    m = square(T, 0)
    twin = copy.deepcopy(m)
    twin.weight = T.zeros(2, 2).double()
    return used(T, m), used(T, twin), type(twin) is type(m)


def loaded(T):
    a, b = square(T, 2), square(T, 2)
    b.weight = T.ones(2, 2).double()
    a.load_state_dict(b.state_dict())
    return a.weight, of(T).type_before_parametrizations(a) is T.nn.Linear


def transferred(T):
    a, b = square(T, 2), layer(T, 2, 2)
    a.weight = T.ones(2, 2).double()
    of(T).transfer_parametrizations_and_params(a, b)
    return b.weight, b.parametrizations.weight.original0 is a.parametrizations.weight.original0


def trained(T):
    m = square(T, 0)
    before = m.weight.detach()
    m.eval()
    modes = [x.training for x in m.modules()]
    for _ in range(2):
        used(T, m)
        with T.no_grad():
            for p in m.parameters():
                p -= 0.1 * p.grad
    return before, m.weight, modes, m.bias


PROGRAMS = {
    "one": one, "several": several, "chain": chain, "removed": lambda T: removed(T, True, 0),
    "removed to the original": lambda T: removed(T, False, 0), "several removed": lambda T: removed(T, True, 2),
    "two names": two_names, "buffers": buffers, "unsafe": unsafe, "caching": caching, "copied": copied,
    "loaded": loaded, "transferred": transferred, "trained": trained,
}  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_parametrizations_do_what_torch_does(program):
    as_torch(program)


ERRORS = {
    "unknown": (lambda T: of(T).register_parametrization(layer(T), "w", classes(T)[1]()), "does not have a parameter"),
    "shape": (lambda T: square(T, 3), "may not change the shape"),
    "dtype": (lambda T: square(T, 4), "may not change the dtype"),
    "next shape": (
        lambda T: of(T).register_parametrization(square(T, 0), "weight", classes(T)[3]()), "may not change the shape",
    ),
    "no inverse": (lambda T: setattr(square(T, 1), "weight", T.ones(2, 2)), "Double does not implement right_inverse"),
    "inverse's dtype": (lambda T: setattr(square(T, 0), "weight", T.ones(2, 2)), "has dtype .*float32 while"),
    "not there": (lambda T: of(T).remove_parametrizations(layer(T), "weight"), "does not have a parametrization"),
    "several left": (lambda T: of(T).remove_parametrizations(square(T, 2), "weight", False), "leave_parametrized=F"),
    "pickle": (lambda T: pickle.dumps(square(T, 0)), "only supported through state_dict"),
    "empty": (lambda T: of(T).ParametrizationList([], T.ones(1)), "requires one or more modules"),
}  # fmt: skip


@pytest.mark.parametrize(("program", "match"), ERRORS.values(), ids=ERRORS)
def test_errors_say_what_torch_says(program, match):
    same_error(program, match)


# -- weight_norm and spectral_norm -------------------------------------------------------------------------------------


def utils(T):
    return T.nn.utils


def with_vectors(m):
    """Give the buffers of a spectral norm the same numbers in both libraries."""
    T = xgrad if isinstance(m, xgrad.nn.Module) else torch
    with T.no_grad():
        for i, (name, b) in enumerate(sorted(m.named_buffers())):
            x = data(T, tuple(b.shape), 20 + i)
            b.copy_(x / (x * x).sum().sqrt())
            assert name.endswith(("_u", "_v"))
    return m


def twice(T, m):
    first = used(T, m)
    m.eval()
    return first, used(T, m), used(T, m)


NORMS = {
    "weight": lambda T: twice(T, utils(T).weight_norm(layer(T))),
    "weight of all": lambda T: twice(T, utils(T).weight_norm(layer(T), dim=None)),
    "weight in columns": lambda T: twice(T, utils(T).weight_norm(layer(T), dim=1)),
    "weight removed": lambda T: used(T, utils(T).remove_weight_norm(utils(T).weight_norm(layer(T)))),
    "new weight": lambda T: twice(T, of(T, "parametrizations").weight_norm(layer(T))),
    "new weight of all": lambda T: twice(T, of(T, "parametrizations").weight_norm(layer(T), dim=None)),
    "old state in the new": lambda T: [
        m := of(T, "parametrizations").weight_norm(layer(T)),
        repr(m.load_state_dict({k: v * 2 for k, v in utils(T).weight_norm(layer(T)).state_dict().items()})), m.weight,
    ],
    "spectral": lambda T: twice(T, with_vectors(utils(T).spectral_norm(layer(T)))),
    "spectral, three steps": lambda T: twice(T, with_vectors(utils(T).spectral_norm(layer(T), n_power_iterations=3))),
    "spectral in columns": lambda T: twice(T, with_vectors(utils(T).spectral_norm(layer(T), dim=1))),
    "spectral removed": lambda T: used(
        T, utils(T).remove_spectral_norm(with_vectors(utils(T).spectral_norm(layer(T))))
    ),
    "spectral's metadata": lambda T: dict(utils(T).spectral_norm(layer(T)).state_dict()._metadata[""]),
    "new spectral": lambda T: twice(T, with_vectors(of(T, "parametrizations").spectral_norm(layer(T)))),
    "new spectral of a vector": lambda T: of(T, "parametrizations").spectral_norm(layer(T), "bias").bias,
    "two forwards": lambda T: [
        m := with_vectors(utils(T).spectral_norm(layer(T))),
        (m(data(T, (2, 2))) - m(data(T, (2, 2), 1))).sum().backward(), m.weight_orig.grad,
    ],
}  # fmt: skip


@pytest.mark.parametrize("program", NORMS.values(), ids=NORMS)
@pytest.mark.filterwarnings("ignore:.*is deprecated in favor of")
def test_norms_of_weights_do_what_torch_does(program):
    def comparable(T):
        return [None if isinstance(x, T.nn.Module) else x for x in program(T)]

    as_torch(comparable)


NORM_ERRORS = {
    "twice": (lambda T: utils(T).weight_norm(utils(T).weight_norm(layer(T))), "Cannot register two weight_norm hooks"),
    "spectral twice": (
        lambda T: utils(T).spectral_norm(utils(T).spectral_norm(layer(T))), "Cannot register two spectral_norm hooks",
    ),
    "none": (lambda T: utils(T).remove_weight_norm(layer(T)), "weight_norm of 'weight' not found"),
    "no spectral": (lambda T: utils(T).remove_spectral_norm(layer(T)), "spectral_norm of 'weight' not found"),
    "steps": (lambda T: utils(T).spectral_norm(layer(T), n_power_iterations=0), "to be positive"),
    "orthogonal vector": (lambda T: of(T, "parametrizations").orthogonal(layer(T), "bias"), "Expected a matrix"),
    "orthogonal map": (
        lambda T: of(T, "parametrizations").orthogonal(layer(T), orthogonal_map="x"), "has to be one of",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("program", "match"), NORM_ERRORS.values(), ids=NORM_ERRORS)
@pytest.mark.filterwarnings("ignore:.*is deprecated in favor of")
def test_errors_of_norms(program, match):
    same_error(program, match)


MAPS = ("matrix_exp", "cayley", "householder")


@pytest.mark.parametrize("trivialized", [True, False])
@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("shape", [(2, 2), (2, 3), (3, 2)])
def test_orthogonal_weights(name, shape, trivialized):
    def program(T):
        m = of(T, "parametrizations").orthogonal(layer(T, *shape), "weight", name, use_trivialization=trivialized)
        if trivialized:
            base = m.parametrizations.weight[0].base
            if shape[0] != shape[1]:  # it was completed by random numbers
                base.copy_(T.linalg.qr(data(T, tuple(base.shape), 9))[0])
        with T.no_grad():
            m.parametrizations.weight.original.add_(data(T, shape[::-1], 5).tril(-1))
        w = m.weight
        (w * data(T, shape[::-1], 6)).sum().backward()
        return w, m.parametrizations.weight.original, m.parametrizations.weight.original.grad, repr(m)

    as_torch(program, rtol=1e-8, atol=1e-10)
