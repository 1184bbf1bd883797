"""Interface between a lane and the consumer group."""

from typing import Protocol

Partition = tuple[str, int]
"""Topic and partition number."""
LaneKey = tuple[str, int]
"""Input topic and lane number."""


class Ownership(Protocol):
    """Requests of a lane to the consumer group; one object for each assignment."""

    async def confirm(self) -> bool:
        """Whether the broker says, now, that this process is a member of the assignment's generation."""
        ...

    async def rewind(self, topic: str, partition: int, offset: int) -> int:
        """Fetch from ``offset`` again; returns the number that batches fetched from then on carry at least."""
        ...
