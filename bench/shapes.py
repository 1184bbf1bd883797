"""Traffic in groups, and how quickly it can be processed at best."""

import random
from itertools import accumulate, pairwise
from typing import Final

CONCURRENCY: Final = 100
"""Handlers at once."""
STUCK: Final = b"stuck"
"""A group of which no message ever ends."""
ZIPF: Final = "Zipf, 1,000"

SHAPES: Final = {"1": 1, "10": 10, "100": 100, "1,000": 1_000, ZIPF: 1_000}
"""Groups, by how a table names them."""


def weights(shape: str) -> list[float]:
    """How often each group comes up."""
    count = SHAPES[shape]
    return [1 / (rank + 1) for rank in range(count)] if shape == ZIPF else [1.0] * count


def groups(shape: str, messages: int) -> list[int]:
    """Return the group of each message: each as often as its weight says, to the message, in a random order.

    Drawn at random, the fullest of 100 equal groups would have 8 % more than its share, and end as much later.
    """
    shares = weights(shape)
    edges = [round(messages * part / sum(shares)) for part in accumulate(shares, initial=0.0)]
    drawn = [group for group, (begin, end) in enumerate(pairwise(edges)) for _ in range(begin, end)]
    random.Random(1).shuffle(drawn)
    return drawn


def bound(shape: str, handler_s: float) -> float:
    """min(concurrency, groups) / handler time; and no group is quicker than its messages one after the other."""
    shares = weights(shape)
    hottest = max(shares) / sum(shares)
    return min(CONCURRENCY / handler_s, len(shares) / handler_s, 1 / hottest / handler_s)
