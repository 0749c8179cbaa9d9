"""A function that asks for the type of an optimizer's number gets its own, whichever way the number came."""

import functools
import operator

import numpy as np
import pytest

import xgrad


class Holder:
    def __init__(self, held):
        self.held = held

    def rate(self):
        return self.held.param_groups[0]["lr"]


class Kept(Holder):
    def rate(self):
        return self.group["lr"]


class Own(xgrad.optim.SGD):
    def rate(self):
        return self.param_groups[0]["lr"]


def of(value):
    """Code that asks for a type, and sees no optimizer."""
    return type(value)


def is_vector(value):
    return type(value) is xgrad.Tensor and getattr(value, "ndim", 0) == 1


def first(groups):
    return next(iter(groups))["lr"]


def kept(optimizer):
    holder = Kept(optimizer)
    holder.group = optimizer.param_groups[0]
    return holder.rate


def partial(optimizer):
    read = functools.partial(getattr, optimizer, "param_groups")
    return lambda: read()[0]["lr"]


def unpacked(optimizer):
    groups = optimizer.param_groups

    def rate():
        return [*groups[0].values()][1]

    return rate


GLOBAL = {}
GROUPS = operator.attrgetter("param_groups")
WAYS = {
    "by its name": lambda o: lambda: o.param_groups[0]["lr"],
    "a group of a closure": lambda o: functools.partial(operator.getitem, o.param_groups[0], "lr"),
    "groups of a closure": unpacked,
    "a group of a default": lambda o: lambda group=o.param_groups[0]: group["lr"],
    "an object that has it": lambda o: Holder(o).rate,
    "an object that has a group": kept,
    "its own method": lambda o: o.rate,
    "getattr": lambda o: lambda: getattr(o, "param_groups")[0]["lr"],  # noqa: B009 - asked in this way
    "vars": lambda o: lambda: vars(o)["param_groups"][0]["lr"],
    "an attrgetter": lambda o: lambda: GROUPS(o)[0]["lr"],
    "a partial": partial,
    "a map": lambda o: lambda: next(map(operator.itemgetter("lr"), o.param_groups)),
    "a method of the class": lambda o: lambda: Own.rate(o),
    "a global": lambda o: GLOBAL.update(o=o) or (lambda: GLOBAL["o"].rate()),
    "a list of optimizers": lambda o: lambda every=[o]: next(each.rate() for each in every),
    "a copied group": lambda o: lambda: dict(o.param_groups[0])["lr"],
    "a generator": lambda o: lambda: next(g["lr"] for g in o.param_groups),
    "a comparison": lambda o: lambda: max(o.param_groups[0]["lr"], 0.0),
    "a function of the groups": lambda o: lambda: first(o.param_groups),
    "a state_dict": lambda o: lambda: o.state_dict()["param_groups"][0]["lr"],
}


@pytest.mark.parametrize("way", WAYS)
def test_a_number_has_its_own_type(way):
    found = []
    for compiles in (False, True):
        w = xgrad.ones(3, requires_grad=True)
        optimizer = Own([w], lr=0.5)
        rate = WAYS[way](optimizer)

        def step(x, optimizer=optimizer, w=w, rate=rate):
            optimizer.zero_grad()
            (w * x).sum().backward()
            optimizer.step()
            return x * (2 if of(rate()) is float else 3)

        run = xgrad.compile(step) if compiles else step
        for lr in (0.5, 0.25, 0.125):
            optimizer.param_groups[0]["lr"] = lr
            found.append(np.stack([run(xgrad.ones(3)).numpy(), w.detach().numpy()]))
    np.testing.assert_allclose(found[:3], found[3:])


def test_code_that_asks_for_types_and_sees_no_optimizer_leaves_rates_operands():
    w = xgrad.ones(3, requires_grad=True)
    optimizer = xgrad.optim.AdamW([w], lr=0.5)

    @xgrad.compile
    def step(x):
        optimizer.zero_grad()
        loss = (w * x).sum() if is_vector(x) else x
        loss.backward()
        optimizer.step()

    for lr in (0.5, 0.25, 0.125):
        optimizer.param_groups[0]["lr"] = lr
        step(xgrad.ones(3))
    assert step.metrics().traces == 1, step.metrics().reasons


def entries(held, name):
    return len(getattr(held, name))


def held_entries(holder):
    return entries(holder.held, "".join(["st", "ate"]))


STATES = {
    "getattr": lambda o: lambda: len(getattr(o, "".join(["st", "ate"]))),
    "vars": lambda o: lambda: len(vars(o)["".join(["st", "ate"])]),
    "a function": lambda o: lambda: entries(o, "".join(["st", "ate"])),
    "an object that has it": lambda o: functools.partial(held_entries, Holder(o)),
    "a closure": lambda o: lambda state=o.state: len(state),
    "a global": lambda o: GLOBAL.update(o=o) or (lambda: entries(GLOBAL["o"], "".join(["st", "ate"]))),
}


@pytest.mark.parametrize("way", STATES)
def test_state_that_was_missed_before_the_first_step_is_missed_there(way):
    found = []
    for compiles in (False, True):
        w = xgrad.ones(3, requires_grad=True)
        optimizer = xgrad.optim.AdamW([w], lr=0.5)
        count = STATES[way](optimizer)

        def step(x, optimizer=optimizer, w=w, count=count):
            before = count()
            optimizer.zero_grad()
            (w * x).sum().backward()
            optimizer.step()
            return x * (2 + before)

        run = xgrad.compile(step) if compiles else step
        found.append([run(xgrad.ones(3)).numpy() for _ in range(3)])
    np.testing.assert_array_equal(*found)
