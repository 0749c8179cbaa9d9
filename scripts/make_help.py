"""Write xgrad/dispatch/help.z: the docstrings of all public functions, joined to what their declarations say.

    python scripts/make_help.py                   # write it: all functions are traced, all examples run (minutes)
    python scripts/make_help.py --check           # exit 1 if it is stale
    python scripts/make_help.py add linalg.inv    # print the texts of these
    python scripts/make_help.py --write add       # write the texts of these, and of new functions

A text has the docstring's words, then Shapes, Dtypes, Errors, Backward and Forms, an example with its output, and the
source.  Which function of PyTorch's is the source is looked up in torch, where that is installed.
"""

import argparse
import contextlib
import importlib
import inspect
import sys
import textwrap
import zlib
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # tests/ops/drawn.py draws the samples

import help_calls
import help_tables
import jax
import numpy as np
from help_backward import backward
from help_calls import Entry
from help_dtypes import Probe, tensors_in
from help_errors import errors

from xgrad.dispatch import tables
from xgrad.dispatch.help_texts import FILE, contents, written
from xgrad.dispatch.samples import Draw

WIDTH = 100
HEAD = "Made by scripts/make_help.py; do not edit."


def entries() -> list[Entry]:
    """Every public function once, with all its names: those of functions first, and methods that wrap the same."""
    found: dict[Any, Entry] = {}
    for place, table in (*tables.FUNCTIONS.items(), ("Tensor", tables.METHODS)):
        for name, function in table.items():
            if name.startswith("_") or isinstance(function, property):
                continue
            key = (getattr(function, "operator", None) and function) or inspect.unwrap(function)
            if key not in found:
                found[key] = Entry(function, [], written(function))
            found[key].names.append((place, name))
    for entry in found.values():  # the name under which it was declared comes first
        own = entry.function.__qualname__.removeprefix("Tensor.")
        module = entry.function.__module__.removeprefix("xgrad").removeprefix(".")
        entry.names.sort(key=lambda n: (n != (module, own), n[0] == "Tensor"))
    return list(found.values())


# -- parts -------------------------------------------------------------------------------------------------------------


def shapes(entry: Entry) -> str:
    """The sentence on shapes: of the tables, by rule from the samples, or those of the example."""
    if entry.inplace and entry.call is not None and entry.call[0]:
        same = entry.result is None or tuple(entry.result.shape) == tuple(tensors_in(entry.call[0])[0].shape)
        return "the tensor keeps its shape." if same else _instance(entry)
    words = help_tables.look_up(help_tables.SHAPES, entry.name)
    if words:
        return words
    parameters = inspect.signature(entry.function).parameters
    op, shown = entry.operator, list(parameters)
    first = shown[0] if shown else ""
    if op is not None:
        pairs = [p for s in help_calls.samples_of(op) for p in [_shapes_of(op, s)] if p is not None]
        arrays = [p for p in op.parameters if op.defaults.get(p, p) is not None]
        if pairs and len(arrays) == 1 and all(outs == [ins[0]] for ins, outs in pairs):
            return f"`{first}` has any shape, and the result has the same."
        if pairs and len(arrays) > 1 and not op.static_names and all(_broadcast(ins, outs) for ins, outs in pairs):
            return "the tensors broadcast together; the result has their common shape."
    if {"dim", "keepdim"} <= set(shown):
        return (
            f"`{first}` has any shape; the result lacks the dimension `dim` (all, where that is None), or has size 1 "
            "there if `keepdim`."
        )
    return _instance(entry)


def _shapes_of(op: Any, sample: Any) -> tuple[list, list] | None:
    arrays, _, statics = help_calls.arguments(op, sample, np.float32)
    given = [np.shape(a) for a, s in zip(arrays, [*sample.arrays, *arrays], strict=False) if isinstance(s, Draw | list)]
    pure = dict(zip(op.static_names, statics, strict=True))
    with contextlib.suppress(Exception):
        made = jax.eval_shape(lambda *a: op.function(*a, **pure), *arrays)
        return given, [a.shape for a in (made if isinstance(made, tuple | list) else [made])]
    return None


def _broadcast(ins: list, outs: list) -> bool:
    with contextlib.suppress(ValueError):
        return outs == [np.broadcast_shapes(*ins)]
    return False


def _instance(entry: Entry) -> str:
    """The shapes of the example's call."""
    if entry.call is None:
        return "any."
    args, named = entry.call
    given = {}
    with contextlib.suppress(TypeError):
        given = inspect.signature(entry.function).bind(*args, **named).arguments
    ins = [f"`{n}` {_size(t[0])}" if len(t) == 1 else f"`{n}` {', '.join(map(_size, t))}"
           for n, v in given.items() if n != "out" and (t := tensors_in(v))]  # fmt: skip
    outs = tensors_in(entry.result)
    if not outs:
        return "any; the result is no tensor." if ins else "no tensors."
    made = ", ".join(map(_size, outs[:3]))
    if not ins:
        return f"the example's result is {made}; its arguments say the shape."
    if len(outs) == 1 and len(ins) == 1 and len(tensors_in(args)) == 1 and outs[0].shape == tensors_in(args)[0].shape:
        return f"in the example the result has the shape of {ins[0]}."
    return f"in the example {' and '.join(ins)} {'give' if len(ins) > 1 else 'gives'} {made}."


def _size(tensor: Any) -> str:
    return str(tuple(tensor.shape))


def forms(entry: Entry) -> str:
    """The forms beside the function."""
    said = []
    names = dict.fromkeys(f"xgrad.{p}.{n}".replace("..", ".") for p, n in entry.names)
    others = [n for n in names if n != entry.public]
    if others:
        said.append("also " + ", ".join(f"`{n}`" for n in others))
    name = entry.name
    if not entry.inplace and entry.place in ("", "nn.functional", "Tensor"):
        own = f"{name}_" in tables.METHODS and f"Tensor.{name}_"
        own = own or (f"{name}_" in tables.FUNCTIONS["nn.functional"] and f"nn.functional.{name}_")
        if own:
            said.append(f"in place `xgrad.{own}`")
        if "inplace" in inspect.signature(entry.function).parameters:
            said.append("`inplace=True`")
    if "out" in inspect.signature(entry.function).parameters:
        said.append("`out=`")
    dunders = [d for d in (f"__{name}__", f"__r{name}__") if d in tables.METHODS and entry.place == ""]
    if dunders:
        said.append(", ".join(f"`{d}`" for d in dunders))
    return ", ".join(said) + "." if said else ""


def source(entry: Entry) -> str:
    """PyTorch's function, and a paper."""
    theirs = _theirs(entry)
    paper = help_tables.look_up(help_tables.PAPERS, entry.name.rstrip("_"))
    text = f"PyTorch's {theirs}" if theirs else "xgrad's own; PyTorch has no function of this name"
    return f"{text}; {paper}." if paper else f"{text}."


def _theirs(entry: Entry) -> str:
    try:
        torch: Any = importlib.import_module("torch")
        importlib.import_module("torch.signal")
    except ImportError:
        sys.exit("make_help.py looks PyTorch's names up in torch, which is not installed")
    for place, name in entry.names:
        path = f"{place}.{name}".lstrip(".")
        value = torch
        with contextlib.suppress(AttributeError):
            for part in path.split("."):
                value = getattr(value, part)
            return f"torch.{path}"
    return ""


# -- texts -------------------------------------------------------------------------------------------------------------


def text_of(entry: Entry) -> str:
    """The whole docstring."""
    paragraphs = inspect.cleandoc(entry.written).split("\n\n")
    example = "\n\n".join(help_calls.written_example(entry))
    if example:
        help_calls.run_written(entry, example)
    else:
        code = help_calls.code_of(entry)
        example = help_calls.run(entry, code)
    entry.typical = help_calls.typical_call(entry)
    jax.config.update("jax_enable_x64", True)
    try:
        probe = Probe(entry)
        parts = {
            "Shapes": shapes(entry), "Dtypes": probe.words(), "Errors": errors(entry, probe),
        }  # fmt: skip
        jax.config.update("jax_enable_x64", "jax_enable_x64" in example)
        parts |= {"Backward": backward(entry), "Forms": forms(entry)}
    finally:
        jax.config.update("jax_enable_x64", False)
    body = [p for p in paragraphs if not p.startswith(">>> ")]
    said = [_wrapped(f"{title}: {words}") for title, words in parts.items() if words]
    return "\n\n".join([*body, *said, example, f"Source: {source(entry)}"])


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def document(chosen: list[Entry], known: dict[str, str]) -> str:
    """The file with all texts; those in `known` stay.  Raises for the functions whose example fails, all of them."""
    texts, failed = [], []
    for entry in chosen:
        try:
            texts.append(known.get(entry.public) or text_of(entry) + "\n")
        except Exception as error:
            failed.append(f"{entry.public}: {type(error).__name__}: {error}")
    if failed:
        sys.exit("\n".join(failed))
    return file_text(chosen, texts)


def known_texts() -> dict[str, str]:
    """The texts in the file, by the functions' names."""
    parts = contents().split("\f")[1:]
    return dict(zip([title.strip() for title in parts[::2]], parts[1::2], strict=True))


def file_text(chosen: list[Entry], texts: list[str]) -> str:
    """The names of each table with the numbers of their texts, and the texts, each below its title.

    An object with several names is listed under one; a method that wraps a function has the function's text.
    """
    numbers = {name: i for i, entry in enumerate(chosen) for name in entry.names}
    head, seen = [HEAD], set()
    for place, table in (*tables.FUNCTIONS.items(), ("Tensor", tables.METHODS)):
        names = [n for n, f in table.items() if (place, n) in numbers and not (id(f) in seen or seen.add(id(f)))]
        head += [" ".join([place or "xgrad", *names]), " ".join(str(numbers[place, n]) for n in names)]
    parts = [f"\f\n{entry.public}\n\f{text}" for entry, text in zip(chosen, texts, strict=True)]
    return "\n".join(head) + "\n" + "".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only say whether the file is stale")
    parser.add_argument("--write", action="store_true", help="write only the texts of these functions, and new ones")
    parser.add_argument("names", nargs="*", help="print the texts of these functions")
    options = parser.parse_args()
    found, known = entries(), {}
    wanted = {(p, n) for p, _, n in (name.rpartition(".") for name in options.names)}
    asked = [entry for entry in found if wanted & {*entry.names}]
    if options.write:
        known = known_texts()
        for entry in asked:
            known.pop(entry.public, None)
    elif asked:
        for entry in asked:
            print(f"{entry.public}\n{text_of(entry)}\n")
        return 0
    text = document(found, known)
    if options.check:
        stale = contents() != text
        print(f"{FILE.name} is stale: run scripts/make_help.py" if stale else f"{FILE.name} is fresh")
        return int(stale)
    FILE.write_bytes(zlib.compress(text.encode(), 9))
    print(f"written: {FILE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
