"""Statements of workers about their configuration, in the metadata of their group. Pure.

Addresses with equal rules stand together: the metadata of all members must fit into one record.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from agents.rules.lane_rules import TOPICS, Limits, Rules, as_written, key_of, limits_of, rules_of
from ringfence_kafka.config.settings import Settings

KEY: Final = "ringfence"
"""In the JSON of the user data, beside the keys of Faust, which ignores it."""


UNUSABLE: Final = "state_unusable"
"""In a statement, if it is so."""


class Said(NamedTuple):
    """Rules and limits that a worker states for one address."""

    rules: Rules
    limits: Limits


class Statement(NamedTuple):
    """The statement of one live worker."""

    worker: str
    """Its instance name; of a member that states nothing its member ID."""
    addresses: Mapping[str, Said] | None
    """By name; None = it states nothing: it is not a worker of Ringfence."""
    unusable: bool = False
    """Its state folder cannot be written: it takes lanes only if nobody else can."""


def own_statement(settings: Settings) -> Statement:
    """Return what a worker of this configuration states."""
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
    """Leave out topics: Kafka knows which ones a member subscribes to, and their names would make each address differ."""
    return {key: value for key, value in rules.items() if key_of(key) not in TOPICS}


def encode(statement: Statement) -> dict[str, Any]:
    """Return a statement as JSON takes it."""
    shared: dict[str, dict[str, Any]] = {}
    for name, said in (statement.addresses or {}).items():
        stated = {"rules": dict(said.rules), "limits": said.limits._asdict()}
        shared.setdefault(json.dumps(stated, sort_keys=True), {"names": [], **stated})["names"].append(name)
    found = {"worker": statement.worker, "addresses": list(shared.values())}
    return found | ({UNUSABLE: True} if statement.unusable else {})


def decode(user_data: bytes | None, member: str) -> Statement:
    """Read the user data of a member. A member that states nothing readable has no addresses: see :class:`Statement`."""
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
    """Return whether a member's user data is that of a worker."""
    try:
        told = json.loads(user_data or b"null")
    except ValueError:
        return False
    return isinstance(told, dict) and KEY in told


def unlike_limits(address: str, statements: Iterable[Statement]) -> list[str]:
    """Return a line for each limit on which live workers disagree, with their values; empty = all agree.

    A worker that does not have the address has no say. A member that states nothing agrees with nobody.
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
