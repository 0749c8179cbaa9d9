"""together: the block in which eager declared backends note programs, and run them as one program at its end.

    xgrad.compile on a backend      with together(...): function(...)      each operator is checked, and then noted
    compiled backward               with together(...): the engine         each node, accumulation and hook as ever

What a backend lacks still ends the program there (fallback="host"), or is refused at its line.
"""

from collections.abc import Iterator

from ..config import block, state


@block
def together(reason: str) -> Iterator[None]:
    """Within the block this thread's eager declared backends note programs; they run at its end, also after an error.

    `reason` says in the metrics why they run then.  In a block within a block nothing changes.
    """
    outer, state.together = state.together, True
    try:
        yield
    finally:
        state.together = outer
        for place, queue in list((state.queues or {}).items()) if not outer else ():
            if not place.runtime.lazy:
                queue.evaluate(reason)
