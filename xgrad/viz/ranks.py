"""ranks: puts the boxes of a picture into rows, so that all edges run downwards (Sugiyama, Tagawa and Toda 1981)."""


def ranks(count: int, edges: list[tuple[int, int]]) -> list[int]:
    """Return the row of each of `count` vertices, so that edges (a, b) have row[a] < row[b], and are short.

    Raises `ValueError` if the edges have a cycle.

    >>> ranks(4, [(0, 1), (1, 2), (3, 2)])
    [0, 1, 2, 1]
    """
    below: list[list[int]] = [[] for _ in range(count)]
    above: list[list[int]] = [[] for _ in range(count)]
    for a, b in edges:
        below[a].append(b)
        above[b].append(a)
    left = [len(found) for found in above]
    order = [v for v in range(count) if not left[v]]
    row = [0] * count
    for v in order:  # `order` grows while it is read
        for w in below[v]:
            row[w] = max(row[w], row[v] + 1)
            left[w] -= 1
            if not left[w]:
                order.append(w)
    if len(order) < count:
        raise ValueError("a layered layout needs a graph without cycles")
    # The longest path from a source put each vertex as high as possible: let those sink that shorten their edges so.
    for _ in range(3):
        changed = False
        for v in reversed(order):
            if below[v] and len(below[v]) > len(above[v]):
                lowest = min(row[w] for w in below[v]) - 1
                changed = changed or lowest != row[v]
                row[v] = lowest
        if not changed:
            break
    return row
