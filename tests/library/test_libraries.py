"""xgrad.library.Library: whose kernel is in force, and until when, as in torch.library."""

import itertools

import pytest
import torch

import xgrad

number = itertools.count()


def while_it_is_there(library, value):
    """The value with the library, and without it."""
    before = value()
    library._destroy()
    return before, value()


def both(scenario):
    """Run `scenario(T, namespace, calls)` under both libraries; return what each gives, or the type of its error."""
    found = []
    for T in (torch, xgrad):
        space = f"kernels{next(number)}"
        owner = T.library.Library(space, "DEF")
        owner.define("f(Tensor x) -> Tensor")

        def value(T=T, space=space):
            try:
                return getattr(T.ops, space).f(T.ones(1)).item()
            except Exception as error:
                return type(error)

        try:
            found.append(scenario(T, space, owner, value))
        except Exception as error:
            found.append(type(error))
    return found


def destroyed(T, space, owner, value):
    other = T.library.Library(space, "IMPL")
    other.impl("f", lambda x: x * 2, "CPU")
    return while_it_is_there(other, value)


def with_lib(T, space, owner, value):
    other = T.library.Library(space, "FRAGMENT")
    T.library.impl(f"{space}::f", "CPU", lambda x: x * 2, lib=other)
    return while_it_is_there(other, value)


def over_an_earlier_one(T, space, owner, value):
    owner.impl("f", lambda x: x * 2, "CPU")
    other = T.library.Library(space, "FRAGMENT")
    T.library.register_kernel(f"{space}::f", "cpu", lambda x: x * 3, lib=other)
    return while_it_is_there(other, value)


def of_another_namespace(T, space, owner, value):
    other = T.library.Library(f"{space}b", "DEF")
    other.define("f(Tensor x) -> Tensor")
    owner.impl(f"{space}b::f", lambda x: x * 2, "CPU")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("scenario", [destroyed, with_lib, over_an_earlier_one, of_another_namespace])
def test_a_kernel_lives_as_long_as_its_library(scenario):
    theirs, ours = both(scenario)
    assert ours == theirs


def test_a_kernel_below_a_later_one_goes_unseen():
    space = f"kernels{next(number)}"
    owner = xgrad.library.Library(space, "DEF")
    owner.define("f(Tensor x) -> Tensor")
    first, second = (xgrad.library.Library(space, "IMPL") for _ in range(2))
    first.impl("f", lambda x: x * 2, "CPU")
    second.impl("f", lambda x: x * 3, "CPU")
    first._destroy()
    assert getattr(xgrad.ops, space).f(xgrad.ones(1)).item() == 3
    second._destroy()
    with pytest.raises(NotImplementedError):
        getattr(xgrad.ops, space).f(xgrad.ones(1))


def test_get_kernel_finds_a_composite_one():
    space = f"kernels{next(number)}"
    owner = xgrad.library.Library(space, "DEF")
    owner.define("f(Tensor x) -> Tensor")
    owner.impl("f", lambda x: x * 2, "CompositeImplicitAutograd")
    assert xgrad.library.get_kernel(f"{space}::f", "CPU")(xgrad.ones(1)).item() == 2
