"""Names that xgrad has not say so, and for PyTorch's what to use."""

import importlib
import subprocess
import sys
import traceback

import pytest
import torch

import xgrad
from xgrad.base import missing

ASKED = {
    ("xgrad.cuda", "memory_summary"): "PyTorch has torch.cuda.memory_summary, xgrad has not. Ask JAX: .*memory_stats",
    ("xgrad", "from_file"): r"PyTorch has torch.from_file, xgrad has not. Use xgrad.from_numpy\(numpy.memmap",
    ("xgrad", "int4"): "PyTorch has torch.int4, xgrad has not. XLA has no arrays of it",
    ("xgrad.distributed", "all_reduce_coalesced"): "PyTorch has .*, xgrad has not. One process drives many devices",
    ("xgrad.autograd.profiler", "emit_itt"): "PyTorch has torch.autograd.profiler.emit_itt, xgrad has not.$",
    ("xgrad.linalg", "svdd"): r"has no attribute 'svdd'. Did you mean svd\?",
    ("xgrad.amp", "Gradscaler"): r"Did you mean GradScaler\?",
    ("xgrad.nn", "Lineer"): r"Did you mean Linear\?",
    ("xgrad.nn", "relu"): "Use xgrad.relu$",
    ("xgrad", "Tenosr"): r"Did you mean Tensor\?",
    ("xgrad.utils.checkpoint", "zzz"): "module 'xgrad.utils.checkpoint' has no attribute 'zzz'$",
}


@pytest.mark.parametrize(("module", "name"), ASKED)
def test_missing_name_says_what_to_use(module, name):
    with pytest.raises(AttributeError, match=ASKED[module, name]):
        getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("name", ["svdd", "eigg"])
def test_python_adds_no_second_guess(name):
    with pytest.raises(AttributeError) as info:
        getattr(xgrad.linalg, name)
    text = traceback.format_exception(info.value)[-1]
    assert text.count("Did you mean") == 1
    assert text == f"xgrad.base.missing.MissingNameError: {info.value}\n"


SPACES = ["autograd", "cpu", "cuda", "fft", "func", "linalg", "nn", "nn.functional", "nn.utils", "utils", ""]


def said(module, name):
    """What the error for a name says; None if there is none."""
    try:
        getattr(module, name)
    except (NotImplementedError, AttributeError) as error:
        return str(error)
    return None


@pytest.mark.parametrize("space", SPACES)
def test_each_name_that_only_pytorch_has_is_explained(space):
    here = importlib.import_module(f"xgrad.{space}".rstrip("."))
    there = importlib.import_module(f"torch.{space}".rstrip("."))
    for name in missing._torch_names()[space]:
        assert hasattr(there, name), name
        text = said(here, name)
        assert text is None or "is not supported" in text or f"PyTorch has {there.__name__}.{name}" in text, name


def test_advice_is_about_names_of_pytorch():
    for space, table in missing._ADVICE.items():
        for names in table:
            for name in names.split():
                assert name == "*" or hasattr(importlib.import_module(f"torch.{space}".rstrip(".")), name), name


def test_missing_name_costs_no_look_up():
    code = """
import xgrad
assert not hasattr(xgrad, "from_file") and getattr(xgrad.nn, "Zzz", 3) == 3
from xgrad.base import missing
assert not missing._torch_names.cache_info().currsize
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_methods_that_pytorch_removed_or_has_for_other_devices_say_so():
    x = xgrad.ones(2)
    for name, text in {"symeig": "eigh", "xpu": "xgrad.devices", "dim_order": "row-major"}.items():
        assert hasattr(torch.Tensor, name)
        with pytest.raises(NotImplementedError, match=text):
            getattr(x, name)()


def test_index_of_the_cpu_is_none():
    for T in (torch, xgrad):
        assert T.device("cpu").index is None
        assert T.ones(1).device.index is None
        assert repr(T.device("cpu")) == "device(type='cpu')"


def test_removed_names_say_what_to_use():
    for name in ("symeig", "lstsq", "solve"):
        with pytest.raises(AttributeError, match=r"Use xgrad\.linalg\."):
            getattr(xgrad, name)
