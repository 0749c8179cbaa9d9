"""Reads the text of XLA's optimized programs, and draws them for xgrad.viz, with fusions, their parts and bytes.

    %add_tanh_fusion = f32[32,16]{1,0} fusion(%dot, %b), kind=kLoop, calls=%fused_computation.5, metadata={op_name=...}

The drawing (scene.py) needs only names, shapes, opcodes, operands, `calls=` and `op_name=`, which have been stable for
years; the other attributes stay as text in `Instruction.rest`, for chips/ and backends/collectives.py.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..base.table import size
from .scene import Box, Edge, Scene
from .text_width import shortened

_FREE = {"constant", "tuple", "get-tuple-element", "bitcast", "parameter", "iota", "after-all"}  # no program of its own
_BITS = re.compile(r"(\d+)")
_SHAPE = re.compile(r"([a-z]+[a-z0-9]*)\[([\d,]*)\]")
_DTYPES = {"f16": "float16", "f32": "float32", "f64": "float64", "bf16": "bfloat16", "pred": "bool", "c64": "complex64",
           "c128": "complex128"}  # fmt: skip
_WIDTH = 40  # characters of a line of operators


class Instruction(NamedTuple):
    """One line of a computation."""

    name: str
    type: str
    opcode: str
    operands: tuple[str, ...]
    calls: str
    operator: str  # JAX's name of the operation that it comes from
    is_root: bool
    rest: str = ""  # what stands behind the opcode


def scene_of_hlo(text: str, cost: dict[str, float] | None = None, title: str = "") -> Scene:
    """Return the scene of a program's entry computation.  Raises `ValueError` for a text that is not an HLO program."""
    computations = dict(computations_of(text))
    entry = next((name for name in computations if name.startswith("ENTRY ")), None)
    if entry is None:
        raise ValueError("this text is not a program of XLA's: it has no ENTRY computation")
    instructions = {each.name: each for each in computations[entry]}
    scene, place = Scene(title), {}
    programs = [each for each in instructions.values() if each.opcode not in _FREE]
    for each in instructions.values():
        if each.opcode == "parameter":
            name = each.operator or each.name
            place[each.name] = scene.add(Box("", "leaf", shortened(name), [(_bytes_line(each.type), "plain")]))
        elif each.opcode not in _FREE:
            place[each.name] = scene.add(_box(each, instructions, computations))
    for each in programs:
        for operand in _sources(each, instructions):
            scene.edges.append(Edge(place[operand], place[each.name], shapes(instructions[operand].type)))
    root = next(each for each in instructions.values() if each.is_root)
    result = scene.add(Box("", "result", "results", [(size(nbytes(root.type)), "plain")]))
    for operand in _sources(root, instructions) if root.opcode in _FREE - {"parameter"} else [root.name]:
        scene.edges.append(Edge(place[operand], result, shapes(instructions[operand].type)))
    used = {edge.source for edge in scene.edges}
    _drop(scene, [i for i, box in enumerate(scene.boxes) if box.kind == "leaf" and i not in used])
    scene.foot = [_summary(programs, instructions, cost)]
    return scene


def _drop(scene: Scene, gone: list[int]) -> None:
    """Remove boxes that have no edges."""
    number = {}
    for i in range(len(scene.boxes)):
        if i not in gone:
            number[i] = len(number)
    scene.boxes = [box for i, box in enumerate(scene.boxes) if i in number]
    for edge in scene.edges:
        edge.source, edge.target = number[edge.source], number[edge.target]


def computations_of(text: str) -> Iterator[tuple[str, list[Instruction]]]:
    """Yield name and instructions of each computation; the entry's name begins with `ENTRY `."""
    name, found = None, []
    for line in text.splitlines():
        if name is None:
            head = re.match(r"(ENTRY )?%?([\w.\-]+) .*\{$", line)
            if head and not line.startswith("HloModule"):
                name, found = (head[1] or "") + head[2], []
        elif line.startswith("}"):
            yield name, found
            name = None
        else:
            instruction = _instruction(line.strip())
            if instruction is not None:
                found.append(instruction)


def _instruction(line: str) -> Instruction | None:
    is_root = line.startswith("ROOT ")
    left, equals, right = line.removeprefix("ROOT ").partition(" = ")
    if not equals:
        return None
    end = _closing(right, 0) + 1 if right.startswith("(") else right.index(" ")
    kind, rest = right[:end], right[end:].strip()
    opcode, paren, _ = rest.partition("(")
    if not paren:
        return None
    stop = _closing(rest, len(opcode))
    inside, attributes = rest[len(opcode) + 1 : stop], rest[stop + 1 :]
    operands = tuple(re.findall(r"%([\w.\-]+)", inside)) if opcode not in ("constant", "parameter") else ()
    calls = re.search(r"\bcalls=%?([\w.\-]+)", attributes)
    operator = re.search(r'op_name="((?:[^"\\]|\\.)*)"', attributes)
    return Instruction(left.lstrip("%"), kind, opcode, operands, calls[1] if calls else "",
                       operator[1] if operator else "", is_root, rest[len(opcode) :])  # fmt: skip


def _closing(text: str, start: int) -> int:
    """Return the place of the parenthesis that closes the one at `start`."""
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if not depth:
            return i
    return len(text) - 1


def _sources(each: Instruction, instructions: dict[str, Instruction]) -> list[str]:
    """Return the instructions whose results this one reads, through tuples and bitcasts; constants do not count."""
    found: dict[str, None] = {}
    waiting = list(reversed(each.operands))
    while waiting:
        name = waiting.pop()
        operand = instructions.get(name)
        if operand is None:
            continue
        if operand.opcode in _FREE and operand.opcode != "parameter":
            waiting += reversed(operand.operands)
        else:
            found[name] = None
    return list(found)


def _box(each: Instruction, instructions: dict[str, Instruction], computations: dict[str, list[Instruction]]) -> Box:
    inside = computations.get(each.calls, [])
    operators = [operator_of(i) for i in inside if i.opcode not in _FREE | {"broadcast"}] or [operator_of(each)]
    read = sum(nbytes(instructions[o].type) for o in dict.fromkeys(each.operands) if o in instructions)
    lines = [(line, "plain") for line in _wrapped(list(dict.fromkeys(operators)))]
    lines.append((f"reads {size(read)}, writes {size(nbytes(each.type))}", "saved"))
    title = re.sub(r"[.\d]+$", "", each.name) or each.name
    kind = "fusion" if inside else "operator"
    return Box(shortened(title), kind, lines=lines, key=(kind, each.type, tuple(lines)))


def operator_of(each: Instruction) -> str:
    """Return the operator that an instruction comes from: xgrad's if JAX's name of it has one, else JAX's."""
    parts = [part for part in re.split(r"/(?![^()]*\))", each.operator) if part]
    own = [match[1] for part in parts if (match := re.fullmatch(r"jit\((\w+)\)", part))]
    last = parts[-1] if parts else each.opcode
    own = own[1:]  # the first is the program
    if own and own[-1] not in ("run", "function", "written") and not own[-1].startswith("_"):
        return own[-1]
    return last if re.fullmatch(r"[\w.\-]+", last) else each.opcode


def _wrapped(words: list[str]) -> list[str]:
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) > _WIDTH:
            lines[-1] += ","
            lines.append(word)
        else:
            lines[-1] += f", {word}" if lines[-1] else word
    return lines if len(lines) < 6 else [*lines[:5], f"and {len(lines) - 5} lines more"]


def nbytes(kind: str) -> int:
    """Return the bytes of a type, also of a tuple's.

    >>> nbytes("(f32[2,3]{1,0}, pred[])")
    25
    """
    total = 0
    for dtype, dims in _SHAPE.findall(kind):
        bits = 8 if dtype == "pred" else int(found[1]) if (found := _BITS.search(dtype)) else 0
        count = 1
        for dim in dims.split(","):
            count *= int(dim) if dim else 1
        total += (count * bits + 7) // 8
    return total


def shapes(kind: str) -> str:
    """Return a type as a shape, with the dtype where that is not float32.

    >>> shapes("f32[2,3]{1,0}"), shapes("s32[]")
    ('[2, 3]', '[] int32')
    """
    found = _SHAPE.findall(kind)
    if len(found) != 1:
        return f"{len(found)} arrays"
    dtype, dims = found[0]
    shape = f"[{', '.join(dims.split(','))}]"
    if dtype[0] in "su" and dtype[1:].isdigit():
        dtype = ("int" if dtype[0] == "s" else "uint") + dtype[1:]
    dtype = _DTYPES.get(dtype, dtype)
    return shape if dtype == "float32" else f"{shape} {dtype}"


def _bytes_line(kind: str) -> str:
    return f"{shapes(kind)}  {size(nbytes(kind))}"


def _summary(programs: list[Instruction], instructions: dict[str, Instruction], cost: Any) -> str:
    fusions = sum(each.opcode == "fusion" for each in programs)
    text = f"{len(programs)} kernels, {fusions} of them fusions"
    if cost:
        text += f"; XLA's estimate: {size(int(cost.get('bytes accessed', 0)))} read and written, "
        text += f"{cost.get('flops', 0):,.0f} floating-point operations"
    return text
