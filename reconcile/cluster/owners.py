"""Owner and rules of the lanes of an address, from the changelogs. Another application's address may make the same names."""

import json
from typing import Final

from reconcile.cluster.admin import Admin
from reconcile.night.cut import Recorded
from ringfence_kafka import wire
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import ForeignChangelogError

META_KEY: Final = b"\x00"
"""Of the record that ends each transaction in a changelog (docs/formats.md)."""


def recorded(settings: Settings, cluster: Admin) -> dict[str, dict[int, Recorded]]:
    """Read what each lane records, and make sure that the changelogs, and so the forward topics, are those of these addresses.

    A changelog without an answer is not refused: it does not exist, this user may not read it, or its records state no owner.

    Returns:
        Address → lane → what it goes by; lanes whose records do not say it are absent.

    Raises:
        ForeignChangelogError: one is another address's.
        BrokerUnavailableError: nobody answers.
    """
    addresses = {wire.changelog_topic(settings.app.id, each.name): each.name for each in settings.addresses}
    topics = cluster.describe(addresses)
    places = [(name, number) for name, facts in topics.items() for number in range(facts.partitions)]
    found: dict[str, dict[int, Recorded]] = {}
    for (topic, number), value in cluster.newest(places, META_KEY).items():
        theirs = _owner(value)
        ours = (settings.app.id, addresses[topic])
        if theirs is not None and theirs != ours:
            raise ForeignChangelogError(f"{topic}/{number}", theirs, ours)
        if (said := _recorded(value)) is not None:
            found.setdefault(addresses[topic], {})[number] = said
    return found


def _recorded(value: bytes) -> Recorded | None:
    """None = an earlier version wrote it."""
    try:
        meta = json.loads(value)
        return Recorded(dict(meta["rules"]), int(meta["capacity"]), int(meta["max_age_ms"]))
    except (ValueError, KeyError, TypeError):
        return None


def _owner(value: bytes) -> tuple[str, str] | None:
    """App ID and address of a meta record; None = it does not say."""
    try:
        meta = json.loads(value)
        app, address = str(meta["app"]), str(meta["address"])
    except (ValueError, KeyError, TypeError):
        return None
    return (app, address) if app and address else None
