"""Interface between a lane and the consumer group."""

from typing import Protocol

Partition = tuple[str, int]
"""Topic and partition number."""
LaneKey = tuple[str, int]
"""Input topic and lane number."""


class Ownership(Protocol):
    """Requests of a lane to the consumer group; one object for each assignment."""

    async def confirm(self) -> bool:
        """Return whether the broker confirms that this process belongs to the generation of this assignment."""

    async def rewind(self, topic: str, partition: int, offset: int) -> int:
        """Fetch from ``offset`` again. Return the lowest :attr:`FetchedBatch.seek` of batches that are fetched after this rewind."""
