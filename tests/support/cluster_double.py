"""A base for doubles of :class:`ringfence_kafka.admin.cluster.Cluster`."""

from typing import Self


class ClusterDouble:
    """Serves its topics, offsets, group and connection itself."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    @property
    def topics(self) -> Self:
        return self

    @property
    def offsets(self) -> Self:
        return self

    @property
    def groups(self) -> Self:
        return self

    @property
    def connection(self) -> Self:
        return self
