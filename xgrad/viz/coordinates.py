"""coordinates: places the boxes of a layered picture within their rows, near their neighbours but not too close.

For one row this is a least-squares problem with an exact solution: min Σ wᵢ (xᵢ - dᵢ)² under xᵢ₊₁ - xᵢ ≥ gᵢ.  With
the gaps subtracted it is isotonic regression, which pools neighbours that violate the order (Barlow et al. 1972).
Invariant: whatever was asked for, the gaps are there.
"""

Rows = list[list[int]]
_STRAIGHT = 8.0  # the weight of a point of a long edge: it should have no bends
_ALIGNED = 1e2


def coordinates(rows: Rows, above: Rows, below: Rows, gaps: list[list[float]], chains: Rows) -> list[float]:
    """Return a place for each vertex.  `gaps`: from each vertex of a row to the next, at least.

    `chains` are the edges: a box, points between, a box.  Those with several points become straight between them.
    """
    x = [0.0] * len(above)
    weight = [1.0] * len(above)
    for chain in chains:
        for v in chain[1:-1]:
            weight[v] = _STRAIGHT
    for row, room in zip(rows, gaps):
        at = -(sum(room)) / 2
        for v, step in zip(row, [*room, 0.0]):
            x[v] = at
            at += step
    for sweep in range(10 if len(x) < 4000 else 4):
        last = sweep >= 8
        down = sweep % 2 == 0
        order = range(len(rows)) if down else reversed(range(len(rows)))
        for r in order:
            row = rows[r]
            wanted, weights = [], []
            for v in row:
                near = (above[v] + below[v]) if last else (above[v] if down else below[v])
                wanted.append(_middle([x[w] for w in near]) if near else x[v])
                weights.append(weight[v] * len(near) if near else 0.05)
            for v, at in zip(row, spread(wanted, weights, gaps[r])):
                x[v] = at
    lines = _lines(above, below)
    for _ in range(24 if len(x) < 1000 else 4):
        wanted = {}
        for line in lines:
            mean = sum(x[v] for v in line) / len(line)
            wanted.update(dict.fromkeys(line, (mean, _ALIGNED)))
        for chain in chains:
            if len(chain) > 4:
                mean = sum(x[v] for v in chain[2:-1]) / (len(chain) - 3)
                wanted.update(dict.fromkeys(chain[2:-1], (mean, _ALIGNED)))
        move(rows, x, gaps, wanted)
    return x


def _lines(above: Rows, below: Rows) -> Rows:
    """Return the vertices that follow each other with no other neighbours between them: they stand in a line."""
    found = []
    for v in range(len(above)):
        if len(above[v]) == 1 and len(below[above[v][0]]) == 1:
            continue  # not the first of its line
        line = [v]
        while len(below[line[-1]]) == 1 and len(above[below[line[-1]][0]]) == 1:
            line.append(below[line[-1]][0])
        if len(line) > 1:
            found.append(line)
    return found


def move(rows: Rows, x: list[float], gaps: list[list[float]], wanted: dict[int, tuple[float, float]]) -> None:
    """Move vertices as near to (place, weight) as they can be; the others have the weight 1, and stay if they can."""
    for row, room in zip(rows, gaps):
        if any(v in wanted for v in row):
            targets = [wanted.get(v, (x[v], 1.0)) for v in row]
            for v, at in zip(row, spread([t[0] for t in targets], [t[1] for t in targets], room)):
                x[v] = at


def _middle(values: list[float]) -> float:
    values.sort()
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def spread(wanted: list[float], weights: list[float], gaps: list[float]) -> list[float]:
    """Return the places nearest to the wanted ones that have at least these gaps between neighbours.

    >>> spread([0.0, 0.0, 10.0], [1.0, 1.0, 1.0], [4.0, 4.0])
    [-2.0, 2.0, 10.0]
    """
    offsets = [0.0]
    for gap in gaps:
        offsets.append(offsets[-1] + gap)
    pools: list[list[float]] = []  # [mean, weight, count]
    for want, weight, offset in zip(wanted, weights, offsets):
        pools.append([want - offset, weight, 1])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            mean, heavy, count = pools.pop()
            last = pools[-1]
            total = last[1] + heavy
            last[0] = (last[0] * last[1] + mean * heavy) / total
            last[1], last[2] = total, last[2] + count
    found: list[float] = []
    for mean, _, count in pools:
        found += [mean + offsets[len(found) + i] for i in range(int(count))]
    return found
