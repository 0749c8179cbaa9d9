"""What cannot be expressed on XLA says so when it is called, and names what to use."""

import abc
import copy
import pickle
import types
import typing
from typing import Optional

import pytest

import xgrad


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: xgrad.quantize_per_tensor(xgrad.ones(2), 0.1, 0, None), "xgrad.quantize_per_tensor .*no quantized"),
        (lambda: xgrad.mkldnn_convolution(), "xgrad.mkldnn_convolution .*xgrad.nn.functional"),
        (lambda: xgrad._scaled_mm(), "_scaled_mm .*bfloat16"),
        (lambda: xgrad._flash_attention_forward(), "scaled_dot_product_attention"),
        (lambda: xgrad.jiterator_unary(), "jax.jit"),
        (lambda: xgrad.nested.nested_tensor([xgrad.ones(2)]), "nested .*padded tensor with a mask"),
        (lambda: xgrad.sparse.sampled_addmm(), "xgrad.sparse.sampled_addmm"),
        (lambda: xgrad.masked.masked_tensor(xgrad.ones(2), xgrad.ones(2)), "xgrad.masked"),
        (lambda: xgrad.nn.functional.scaled_mm(), "xgrad.nn.functional.scaled_mm"),
        (lambda: xgrad.ones(2).to_mkldnn(), "xgrad.Tensor.to_mkldnn"),
        (lambda: xgrad.ones(2).smm(xgrad.ones(2)), r"xgrad.Tensor.smm .*to_dense\(\)"),
        (lambda: xgrad.ones(2).rename("N"), "dimensions have no names"),
        (lambda: xgrad.ones(2).share_memory_(), "x.data = y.*untyped_storage()"),
    ],
)
def test_a_call_names_the_operator_and_the_alternative(call, match):
    with pytest.raises(NotImplementedError, match=match):
        call()


REFUSED = [
    xgrad.nested, xgrad.quantize_per_tensor, xgrad.masked.MaskedTensor, xgrad.cuda.Stream, xgrad.fx.Graph,
    xgrad.Tensor.to_mkldnn, xgrad.export.Dim.AUTO,
]  # fmt: skip


@pytest.mark.parametrize("name", REFUSED, ids=repr)
def test_only_a_call_of_a_refused_name_raises(name):
    def annotated(x: name | None, *y: "name") -> Optional[name]:  # noqa: UP045 - as packages write it
        return x

    class Derived(name, abc.ABC):
        pass

    class Module(xgrad.nn.Module, name):
        pass

    @name
    def decorated(x):
        return x

    @name
    class Decorated:
        pass

    assert annotated(1) == 1
    assert typing.get_type_hints(annotated, localns={"name": name})["y"] is name
    assert isinstance(name[int] | list[int], types.UnionType)
    assert not isinstance(xgrad.ones(1), name)
    assert issubclass(Derived, name)
    assert pickle.loads(pickle.dumps(name)) is copy.deepcopy(name) is name
    assert {name: 1}[name] == 1
    match = rf"xgrad.*{name.__name__} is not supported: .+\. .+"
    for call in (name, Derived, Module, decorated, Decorated, lambda: name(annotated)):
        with pytest.raises(NotImplementedError, match=match):
            call()


def test_a_refused_error_may_stand_in_an_except_clause():
    def program():
        try:
            raise KeyError
        except (xgrad.fx.SomeError, xgrad.onnx.errors.Other):
            pass

    with pytest.raises(KeyError):
        program()


def test_looking_a_function_up_is_no_error():
    assert callable(xgrad.quantize_per_tensor)
    assert hasattr(xgrad.ones(1), "to_mkldnn")
    assert repr(xgrad.sparse.sampled_addmm) == "<xgrad.sparse.sampled_addmm: not supported>"


def test_what_stands_for_a_value_raises_when_it_is_looked_up_and_is_not_there():
    with pytest.raises(NotImplementedError, match=r"xgrad\.qint8 is not supported"):
        xgrad.qint8
    assert not hasattr(xgrad, "complex32")
    assert getattr(xgrad, "jagged", None) is None


@pytest.mark.parametrize("place", [xgrad, xgrad.sparse, xgrad.masked, xgrad.nn.functional, xgrad.ones(1)])
def test_an_unknown_name_stays_an_attribute_error(place):
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        place.nonsense


def test_a_subclass_finds_the_methods_too():
    class Named(xgrad.Tensor):
        pass

    with pytest.raises(NotImplementedError, match="to_mkldnn"):
        xgrad.ones(2).as_subclass(Named).to_mkldnn()


def test_nothing_in_the_table_exists():
    """An operator that was made leaves the table."""
    from xgrad.base import unsupported

    spaces = {"": xgrad, "amp": xgrad.amp, "sparse": xgrad.sparse, "masked": xgrad.masked}
    spaces |= {name: getattr(xgrad, name) for name in ("accelerator", "cuda", "distributed", "jit")}
    spaces["nn.functional"] = xgrad.nn.functional
    for place, name in unsupported._reasons:
        if place != "Tensor":
            assert name not in vars(spaces[place]), f"{place}.{name}"
        else:
            assert isinstance(getattr(xgrad.Tensor, name), unsupported.Unsupported)
