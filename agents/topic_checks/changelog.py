"""Problems of addresses that only their logs show. A worker checks them at its start, as does ``topics check``."""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from agents.topic_checks import topics
from agents.topic_checks.lanes import live
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.topics import TopicDescription
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.errors import ForeignChangelogError
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.readers.log_reader import LogReader
from tables.codec import META_KEY, FormatError, Meta, decode_meta
from tables.restore import require_own

TOLD_LIMIT_S: Final = 5.0
"""Limit of the query for the offsets of all changelogs, in seconds: less than the caller has for the whole check."""


Look = Callable[[AddressSettings, Meta], str | None]


def no_check(_address: AddressSettings, _meta: Meta) -> None:
    """Return no problem."""


async def state_faults(
    cluster: Cluster,
    settings: Settings,
    addresses: Collection[AddressSettings],
    existing: Mapping[str, TopicDescription],
    *,
    look: Look = no_check,
) -> dict[str, list[str]]:
    """Return problems by address: a changelog of another owner, or changed partition counts.

    A partition without an answer adds no problem, because its lane will report it and must not delay the others. ``look``: returns one
    more problem, or None, for an address and the meta record of one of its lanes.
    """
    app_id = cluster.group_id
    changelogs = [wire_names.changelog_topic(app_id, address.name) for address in addresses]
    places = [
        (changelog, p)
        for changelog in changelogs
        if changelog in existing
        for p in range(existing[changelog].partitions)
    ]
    starts, ends = await asyncio.gather(
        cluster.offsets.known_starts(places, TOLD_LIMIT_S),
        cluster.offsets.known_stable_ends(places, TOLD_LIMIT_S),
    )
    metas = await _newest_metas(
        cluster, {start: (starts[start], ends[start]) for start in starts.keys() & ends.keys()}
    )
    found = {}
    for address in addresses:
        faults = meta_faults(app_id, address, metas, existing, settings.transaction_targets(address))
        more = [look(address, meta) for meta in _own(app_id, address, metas).values()]
        found[address.name] = faults or list(dict.fromkeys(filter(None, more)))
    return found


async def newest_meta(cluster: Cluster, topic: str, partition: int) -> Meta | None:
    """Return the newest meta record of a lane; None if the end of its changelog has none. Raises errors of Kafka."""
    return (await newest_metas(cluster, topic, [partition])).get(partition)


async def newest_metas(cluster: Cluster, topic: str, partitions: Iterable[int]) -> dict[int, Meta]:
    """Return the newest meta records of several lanes, by partition of the changelog."""
    places = [(topic, partition) for partition in partitions]
    spans = await asyncio.gather(*(_span(cluster, place) for place in places))
    metas = await _newest_metas(cluster, dict(zip(places, spans, strict=True)))
    return {partition: meta for (_, partition), meta in metas.items()}


async def _newest_metas(
    cluster: Cluster, spans: Mapping[tuple[str, int], tuple[int, int]]
) -> dict[tuple[str, int], Meta]:
    """Read the last meta record of each changelog. Each transaction ends with one, so only aborted records can follow it."""
    metas = {}
    for place, value in (await LogReader(cluster.kafka).newest_values(spans, META_KEY)).items():
        with contextlib.suppress(FormatError):  # a restore reports it
            metas[place] = decode_meta(value)
    return metas


async def _span(cluster: Cluster, place: tuple[str, int]) -> tuple[int, int]:
    """Return start and last stable offset. A killed worker leaves a transaction open, for which the check must not wait."""
    start, end = await asyncio.gather(cluster.offsets.log_start(*place), cluster.offsets.stable_end(*place))
    return start, end


def meta_faults(
    app_id: str,
    address: AddressSettings,
    metas: Mapping[tuple[str, int], Meta],
    existing: Mapping[str, TopicDescription],
    targets: Iterable[AddressSettings] = (),
) -> list[str]:
    """Return problems of an address: rings of another owner, or changed partition counts of topics.

    ``targets``: other addresses that its transactions have parts for. Their accepted topics count as its own.
    """
    changelog_topic = wire_names.changelog_topic(app_id, address.name)
    own = _own(app_id, address, metas)
    for number, meta in own.items():
        try:
            require_own(meta, app_id, address.name, f"{changelog_topic}/{number}")
        except ForeignChangelogError as error:
            return [str(error)]
    counts = {name: topic.partitions for name, topic in existing.items()}
    return topics.count_faults(address, counts, own.values(), targets)


def _own(app_id: str, address: AddressSettings, metas: Mapping[tuple[str, int], Meta]) -> dict[int, Meta]:
    changelog = wire_names.changelog_topic(app_id, address.name)
    return live({number: meta for (topic, number), meta in metas.items() if topic == changelog})
