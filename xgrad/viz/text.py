"""text: writes a picture's scene as text for a terminal: a line for each box, from the top down."""

from .scene import Box, Edge, Scene


def text(scene: Scene) -> str:
    """Return a scene as lines of text.

    A box with one child has it on the next line; several are branches.  What was shown before is named again with its
    number.  Recursion goes as deep as scenes lie in each other; long graphs do without.
    """
    lines = [scene.title] if scene.title else []
    lines += _tree(scene)
    return "\n".join([*lines, *scene.foot])


def _tree(scene: Scene) -> list[str]:
    outgoing, incoming = scene.outgoing(), scene.incoming()
    number: dict[int, int] = {}  # of those with several parents, as they come
    lines: list[str] = []
    seen: set[int] = set()
    stack: list[tuple[int, Edge | None, str, str]] = [
        (v, None, "", "") for v in reversed(range(len(scene.boxes))) if not incoming[v]
    ]
    while stack:
        v, edge, first, rest = stack.pop()
        box = scene.boxes[v]
        arrow = ""
        if edge is not None:
            arrow = f"{edge.label} ┄ " if edge.dashed and edge.label else "┄ " if edge.dashed else ""
            arrow = arrow or (f"{edge.label} → " if edge.label else "")
        tag = f"  #{number.setdefault(v, len(number) + 1)}" if len(incoming[v]) > 1 else ""
        if v in seen:
            lines.append(f"{first}{arrow}{box.heading}{tag}, above")
            continue
        seen.add(v)
        lines.append(f"{first}{arrow}{_line(box)}{tag}")
        if box.inner is not None:
            lines += [f"{rest}│ {line}" for line in _tree(box.inner)]
        edges = outgoing[v]
        if len(edges) == 1:
            stack.append((edges[0].target, edges[0], rest, rest))
        else:
            for i, out in reversed(list(enumerate(edges))):
                last = i == len(edges) - 1
                mark, room = ("└─ ", "   ") if last else ("├─ ", "│  ")
                stack.append((out.target, out, rest + mark, rest + room))
    return lines


def _line(box: Box) -> str:
    return "  ".join([box.heading, *(f"[{text}]" if kind == "hook" else text for text, kind in box.lines)])
