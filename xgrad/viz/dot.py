"""dot: writes a picture of `xgrad.viz` in DOT, graphviz's language, for `Drawing.dot()`."""

from .scene import Box, Scene

_SHAPES = {"leaf": "ellipse", "result": "ellipse", "storage": "cylinder", "port": "plaintext"}


def dot(scene: Scene) -> str:
    """Return a scene as text in graphviz's language; scenes inside of boxes are clusters."""
    lines = ["digraph xgrad {", f"  rankdir={'TB' if scene.direction == 'down' else 'LR'}; compound=true;"]
    lines += ['  node [shape=box, fontname="Helvetica"]; edge [fontname="Helvetica", fontsize=10];']
    if scene.title:
        lines.append(f"  label={quoted(scene.title)}; labelloc=t;")
    _body(scene, "n", lines, "  ")
    return "\n".join([*lines, "}"]) + "\n"


def _body(scene: Scene, prefix: str, lines: list[str], indent: str) -> None:
    for i, box in enumerate(scene.boxes):
        name = f"{prefix}{i}"
        if box.inner is None:
            shape = f", shape={_SHAPES[box.kind]}" if box.kind in _SHAPES else ""
            lines.append(f"{indent}{name} [label={quoted(_label(box))}{shape}];")
        else:
            lines += [f"{indent}subgraph cluster_{name} {{", f"{indent}  label={quoted(_label(box))};"]
            lines.append(f'{indent}  {name} [label="", shape=point, style=invis];')
            _body(box.inner, f"{name}_", lines, indent + "  ")
            lines.append(f"{indent}}}")
    for edge in scene.edges:
        options = [f"label={quoted(edge.label)}"] if edge.label else []
        options += ["style=dashed"] if edge.dashed else []
        options += [f"ltail=cluster_{prefix}{edge.source}"] if scene.boxes[edge.source].inner else []
        options += [f"lhead=cluster_{prefix}{edge.target}"] if scene.boxes[edge.target].inner else []
        shown = f" [{', '.join(options)}]" if options else ""
        lines.append(f"{indent}{prefix}{edge.source} -> {prefix}{edge.target}{shown};")


def _label(box: Box) -> str:
    return "\n".join([box.heading, *(text for text, _ in box.lines)])


def quoted(text: str) -> str:
    r"""Return a text as a string of DOT's.

    >>> print(quoted('a "b" \\ c'))
    "a \"b\" \\ c"
    """
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"'
