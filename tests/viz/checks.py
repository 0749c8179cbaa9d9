"""What every layout keeps, whatever its scene."""

import xml.etree.ElementTree as ET
from itertools import combinations

from xgrad.viz.layout import LABEL
from xgrad.viz.svg import svg
from xgrad.viz.text_width import width

CLOSE = 0.35  # places are rounded to a tenth


def check_layout(found):
    """No two boxes or labels overlap, edges end at their boxes' sides and cross no other box."""
    scene, down = found.scene, found.scene.direction == "down"
    labels = [
        (curve.label[0], curve.label[1] - LABEL, width(edge.label, LABEL), LABEL)
        for edge, curve in zip(scene.edges, found.curves)
        if curve.label is not None
    ]
    for a, b in combinations([*found.boxes, *labels], 2):
        assert not overlap(a, b), (a, b)
    for box in [*found.boxes, *labels]:
        assert box[0] >= -CLOSE, box
        assert box[1] >= -CLOSE, box
        assert box[0] + box[2] <= found.width + CLOSE, box
        assert box[1] + box[3] <= found.height + CLOSE, box
    for edge, curve in zip(scene.edges, found.curves):
        source, target = found.boxes[edge.source], found.boxes[edge.target]
        across, along = (0, 1) if down else (1, 0)
        for box, point, side in ((source, curve.start, 1), (target, curve.end, 0)):
            assert abs(point[along] - box[along] - side * box[2 + along]) < CLOSE, (edge, box, point)
            assert box[across] - CLOSE <= point[across] <= box[across] + box[2 + across] + CLOSE, (edge, box, point)
        for point in points(curve):
            for i, box in enumerate(found.boxes):
                inside = all(box[k] + CLOSE < point[k] < box[k] + box[2 + k] - CLOSE for k in (0, 1))
                assert not inside, (edge, i, point)
    for box, place, inner in zip(scene.boxes, found.boxes, found.inner):
        assert width(box.heading, 12.5, True) <= place.width or box.kind == "port"
        if inner is not None:
            assert inner.width <= place.width
            assert inner.height <= place.height
            check_layout(inner)


def overlap(a, b):
    return all(a[k] + CLOSE < b[k] + b[2 + k] and b[k] + CLOSE < a[k] + a[2 + k] for k in (0, 1))


def points(curve):
    """Points along a path, some of each part."""
    here = None
    for command, given in curve.path:
        if command == "C":
            for i in range(1, 12):
                t = i / 12
                a, b, c, d = here, *given
                yield tuple(
                    (1 - t) ** 3 * a[k] + 3 * (1 - t) ** 2 * t * b[k] + 3 * (1 - t) * t * t * c[k] + t**3 * d[k]
                    for k in (0, 1)
                )
        elif command == "L":
            yield from (tuple(here[k] + (given[0][k] - here[k]) * i / 8 for k in (0, 1)) for i in range(1, 8))
        here = given[-1]


def texts(found):
    """The texts of the SVG, which is well-formed, in order."""
    root = ET.fromstring(svg(found))
    return [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
