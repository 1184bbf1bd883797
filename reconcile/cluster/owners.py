"""Owners and rules of lanes, from changelogs: another application may use the same names."""

import json
from typing import Final

from reconcile.cluster.admin import Admin
from reconcile.run.history.cut import Recorded
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import ForeignChangelogError, PrerequisiteError
from ringfence_kafka.protocol import wire_names

META_KEY: Final = b"\x00"  # key of the record that ends each transaction in a changelog (docs/formats.md)
FORMATS: Final = frozenset({1, 2, 3})  # formats of that record


def recorded(settings: Settings, cluster: Admin) -> dict[str, dict[int, Recorded]]:
    """Return the recorded rules by address and lane; lanes without a record are absent.

    A changelog that does not exist, or that this user may not read, is left out.

    Raises:
        ForeignChangelogError: A changelog, and so a forward topic, belongs to another address.
        PrerequisiteError: Another version wrote a record.
        BrokerUnavailableError: No broker answers.
    """
    addresses = {
        wire_names.changelog_topic(settings.app.id, address.name): address.name
        for address in settings.addresses
    }
    topics = cluster.describe(addresses)
    places = [(name, number) for name, facts in topics.items() for number in range(facts.partitions)]
    found: dict[str, dict[int, Recorded]] = {}
    for (topic, number), value in cluster.newest(places, META_KEY).items():
        theirs, said = _meta(value, f"{topic}/{number}")
        ours = (settings.app.id, addresses[topic])
        if theirs != ours:
            raise ForeignChangelogError(f"{topic}/{number}", theirs, ours)
        found.setdefault(addresses[topic], {})[number] = said
    return found


def _meta(value: bytes, where: str) -> tuple[tuple[str, str], Recorded]:
    """Return app ID and address, and rules and limits, of a meta record."""
    try:
        return _parsed(value)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PrerequisiteError(
            f"{where}: the lane's meta record cannot be read ({error!r}), so its rules are not known: use the reconciliation of the version "
            "that the workers run"
        ) from error


def _parsed(value: bytes) -> tuple[tuple[str, str], Recorded]:
    meta = json.loads(value)
    if meta["format"] not in FORMATS:
        raise ValueError(f"format {meta['format']!r}")
    promise = meta.get("promise") or {}
    recorded = Recorded(
        dict(meta.get("rules", {})),
        int(meta["capacity"]),
        int(meta["max_age_ms"]),
        int(meta.get("lanes", 0)),
        *(int(promise.get(name, 0)) for name in ("min_age_ms", "size", "broken")),
    )
    return (str(meta["app"]), str(meta["address"])), recorded
