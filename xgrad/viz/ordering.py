"""ordered: orders the boxes in each row of a layered layout for few crossings, by medians and exchanges of neighbours.

(Gansner, Koutsofios, North and Vo, A technique for drawing directed graphs, 1993.)
"""

from bisect import bisect_right, insort
from itertools import pairwise

Rows = list[list[int]]


def ordered(rows: Rows, above: Rows, below: Rows) -> Rows:
    """Return the rows' vertices in an order with few crossings.  `above[v]`: the neighbours of v in the row before."""
    size = sum(map(len, rows))
    sweeps = 16 if size < 800 else 6 if size < 4000 else 2
    best, fewest = [list(row) for row in rows], crossings(rows, below)
    rows = [list(row) for row in rows]
    place = [0] * len(above)
    for row in rows:
        _note(row, place)
    for sweep in range(sweeps):
        if not fewest:
            break
        down = sweep % 2 == 0
        neighbours = above if down else below
        for row in rows[1:] if down else reversed(rows[:-1]):
            _by_medians(row, neighbours, place)
        if size < 4000:
            for row in rows:
                _exchange(row, above, below, place)
        found = crossings(rows, below)
        if found < fewest:
            best, fewest = [list(row) for row in rows], found
    return best


def _note(row: list[int], place: list[int]) -> None:
    for i, v in enumerate(row):
        place[v] = i


def _by_medians(row: list[int], neighbours: Rows, place: list[int]) -> None:
    """Sort a row by the median place of each vertex's neighbours; a vertex without any stays where it is."""
    medians = {v: _median(sorted(place[w] for w in neighbours[v])) for v in row if neighbours[v]}
    moving = iter(sorted(medians, key=medians.__getitem__))  # stable: equal ones stay in their order
    row[:] = [next(moving) if v in medians else v for v in row]
    _note(row, place)


def _median(places: list[int]) -> float:
    middle = len(places) // 2
    if len(places) % 2:
        return places[middle]
    if len(places) == 2:
        return sum(places) / 2
    left, right = places[middle - 1] - places[0], places[-1] - places[middle]
    if left + right == 0:
        return (places[middle - 1] + places[middle]) / 2
    return (places[middle - 1] * right + places[middle] * left) / (left + right)


def _exchange(row: list[int], above: Rows, below: Rows, place: list[int]) -> None:
    """Exchange neighbours in a row as long as that removes crossings."""
    for _ in range(4):
        better = False
        for i in range(len(row) - 1):
            v, w = row[i], row[i + 1]
            now = _pair(above[v], above[w], place) + _pair(below[v], below[w], place)
            if now and now > _pair(above[w], above[v], place) + _pair(below[w], below[v], place):
                row[i], row[i + 1] = w, v
                place[v], place[w] = i + 1, i
                better = True
        if not better:
            break


def _pair(left: list[int], right: list[int], place: list[int]) -> int:
    """Return the crossings of the edges of two vertices that stand next to each other."""
    if not left or not right:
        return 0
    rights = sorted(place[w] for w in right)
    count = 0
    for v in left:
        at = place[v]
        for other in rights:
            if other >= at:
                break
            count += 1
    return count


def crossings(rows: Rows, below: Rows) -> int:
    """Return the number of pairs of edges that cross.

    >>> crossings([[0, 1], [2, 3]], [[3], [2], [], []])
    1
    """
    count = 0
    for row, following in pairwise(rows):
        place = {v: i for i, v in enumerate(following)}
        seen: list[int] = []  # the places of the ends of edges from vertices further left, sorted
        for v in row:
            ends = sorted(place[w] for w in below[v])
            count += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return count
