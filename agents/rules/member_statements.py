"""Statements of workers about their configuration, in the metadata of their group. Pure.

Addresses with equal rules share one entry, because the metadata of all members must fit into one record.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from agents.rules.lane_rules import TOPICS, Limits, Rules, as_written, key_of, limits_of, rules_of
from ringfence_kafka.config.settings import Settings

KEY: Final = "ringfence"
"""Key in the JSON of the user data, next to the keys of Faust. Faust ignores it."""


UNUSABLE: Final = "state_unusable"
"""Key in a statement of a worker whose state folder is unusable."""


class Said(NamedTuple):
    """Rules and limits that a worker states for one address."""

    rules: Rules
    limits: Limits


class Statement(NamedTuple):
    """Statement of one live worker."""

    worker: str
    """Instance name of the worker, or the member ID of a member without a statement."""
    addresses: Mapping[str, Said] | None
    """Rules and limits by address name; None if the member is not a worker of Ringfence."""
    unusable: bool = False
    """Whether its state folder cannot be written. It takes lanes only if no other worker can."""


def own_statement(settings: Settings) -> Statement:
    """Return the statement of a worker with this configuration."""
    return Statement(
        settings.app.instance_name,
        {
            address.name: Said(
                _stated(rules_of(address, settings.transaction_targets(address))), limits_of(address)
            )
            for address in settings.addresses
        },
    )


def _stated(rules: Rules) -> dict[str, Any]:
    """Leave out topics: Kafka knows the subscriptions, and the names would make each address differ."""
    return {key: value for key, value in rules.items() if key_of(key) not in TOPICS}


def encode(statement: Statement) -> dict[str, Any]:
    """Return a statement in the form for JSON."""
    shared: dict[str, dict[str, Any]] = {}
    for name, said in (statement.addresses or {}).items():
        stated = {"rules": dict(said.rules), "limits": said.limits._asdict()}
        shared.setdefault(json.dumps(stated, sort_keys=True), {"names": [], **stated})["names"].append(name)
    found = {"worker": statement.worker, "addresses": list(shared.values())}
    return found | ({UNUSABLE: True} if statement.unusable else {})


def decode(user_data: bytes | None, member: str) -> Statement:
    """Read the user data of a member. Without a readable statement it has no addresses, see :class:`Statement`."""
    try:
        told = json.loads(user_data or b"{}")[KEY]
        addresses = {
            str(name): Said(dict(item["rules"]), Limits(**item["limits"]))
            for item in told["addresses"]
            for name in item["names"]
        }
        return Statement(str(told["worker"]), addresses, bool(told.get(UNUSABLE)))
    except (ValueError, KeyError, TypeError, AttributeError):
        return Statement(member, None)


def is_worker(user_data: bytes) -> bool:
    """Return whether a worker wrote this user data."""
    try:
        told = json.loads(user_data or b"null")
    except ValueError:
        return False
    return isinstance(told, dict) and KEY in told


def unlike_limits(address: str, statements: Iterable[Statement]) -> list[str]:
    """Return a line for each limit on which live workers disagree, with their values; empty if all agree.

    Workers without the address are not counted. A member without a statement always disagrees.
    """
    everybody = sorted(statements, key=lambda each: each.worker)
    limits = [
        (item.worker, item.addresses[address].limits)
        for item in everybody
        if item.addresses is not None and address in item.addresses
    ]
    found = []
    for field in Limits._fields:
        values = list(dict.fromkeys((worker, getattr(item, field)) for worker, item in limits))
        if len({value for _, value in values}) > 1:
            said = ", ".join(f"{worker} has {as_written(value)}" for worker, value in values)
            found.append(f"{field}: {said}")
    silent = [item.worker for item in everybody if item.addresses is None]
    if silent:
        found.append(f"{', '.join(silent)} states no limits: it is not a worker of Ringfence")
    return found
