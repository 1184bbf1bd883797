"""Rules of a lane (ID, group, home) and limits of its ring, as its meta record holds them. Pure.

A worker with other rules does not open the lane. Recorded limits stay until all live workers state the same new ones.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from ringfence_kafka.config.settings import AddressSettings
from tables.codec import Meta
from tables.promise import Promise

Rules = Mapping[str, Any]
"""Key of the configuration → value, as JSON gives it back. A key of a target address is written ``<address>: <key>``."""

OWN_FILE: Final = "in this worker's file"
"""Stands in each fault about rules: no check of topics finds anything there."""
TOPICS: Final = ("input_topic", "accepted_topic")


class Limits(NamedTuple):
    """Limits of a ring's memory; each field is a key of the configuration."""

    id_cache_size: int
    """IDs."""
    id_max_age: float
    """Seconds; 0 = no limit."""
    persist_id_cache: bool
    id_min_age: float = 0
    """Seconds; 0 = no promise."""
    id_cache_size_max: int = 0
    """IDs; 0 = no promise."""

    @property
    def capacity(self) -> int:
        """IDs that the ring has room for."""
        return self.id_cache_size_max or self.id_cache_size

    @property
    def promise(self) -> Promise | None:
        """The promise of ``id_min_age``, before anything came; None = there is none."""
        return Promise(self.id_cache_size, round(self.id_min_age * 1000)) if self.id_min_age else None


def rules_of(address: AddressSettings, targets: Iterable[AddressSettings] = ()) -> dict[str, Any]:
    """Return the rules that a configuration states for the lanes of an address; ``targets`` are addresses that its transactions may reach."""
    found = _own_rules(address)
    for target in targets:
        found |= {
            f"{target.name}: {key}": value for key, value in _own_rules(target).items() if key != TOPICS[0]
        }
    return found


def _own_rules(address: AddressSettings) -> dict[str, Any]:
    """Keys without an effect are left out: a change of them changes no verdict."""
    found: dict[str, Any] = {topic: getattr(address, topic) for topic in TOPICS}
    forms = address.duplicate_id_from
    found["duplicate_id_from"] = forms if isinstance(forms, str) else list(forms)
    if address.duplicate_id_from == "header":
        found["duplicate_id_headers"] = list(address.duplicate_id_headers)
    found["group_header"] = address.group_header
    if address.group_header:
        found["default_group"] = address.default_group
    return found | {"partitioner": address.partitioner}


def limits_of(address: AddressSettings) -> Limits:
    """Return the limits that a configuration states."""
    # As the record has them, in whole milliseconds.
    most, least = (round(age * 1000) / 1000 for age in (address.id_max_age, address.id_min_age))
    return Limits(address.id_cache_size, most, address.persist_id_cache, least, address.id_cache_size_max)


def recorded_limits(meta: Meta) -> Limits:
    """Return the limits that a lane's last transaction recorded."""
    return limits_in_force(meta.capacity, meta.max_age_ms, meta.promise, meta.persistent)


def limits_in_force(capacity: int, max_age_ms: int, promise: Promise | None, persistent: bool) -> Limits:
    """Return the limits of a ring."""
    if promise is None:
        return Limits(capacity, max_age_ms / 1000, persistent)
    return Limits(promise.size, max_age_ms / 1000, persistent, promise.min_age_ms / 1000, capacity)


def shown(limits: Limits) -> str:
    """Return limits as the configuration file has them."""
    return ", ".join(f"{key} = {as_written(value)}" for key, value in limits._asdict().items())


def with_limits(address: AddressSettings, limits: Limits) -> AddressSettings:
    """Return the address as a lane with these limits sees it."""
    return address if limits_of(address) == limits else address.model_copy(update=limits._asdict())


def differences(recorded: Rules, own: Rules) -> list[tuple[str, Any, Any]]:
    """Return key, recorded value and own value of each rule that differs.

    A rule that only one of the two states is not compared: the list of target addresses differs, or another version knows other rules.
    """
    return [(key, recorded[key], own[key]) for key in own if key in recorded and recorded[key] != own[key]]


def key_of(rule: str) -> str:
    """Return the configuration key of a rule, without the target address."""
    return rule.rpartition(" ")[2]


def as_written(value: Any) -> str:
    """Return a value as the configuration file has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(as_written, value))}]"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def rules_fault(address: str, recorded: Rules, own: Rules) -> str | None:
    """Return why a worker must not open a lane of the address: each differing rule with both values, and the way out."""
    found = _compared(recorded, "in the lane's record", own)
    if not found:
        return None
    return (
        f"this worker's file has other rules than the lane: {found}. Its messages wait, none is lost. Give this worker the file of "
        f"the other workers and start it again. To change the rule on purpose, stop all workers and run 'ringfence rings adopt {address}'"
    )


def file_fault(address: str, recorded: Rules, own: Rules) -> str | None:
    """Return why no worker with this file opens a lane; :func:`rules_fault` judges one that tried."""
    found = _compared(recorded, "in the record of its lanes", own, "in this file")
    if not found:
        return None
    return (
        f"{address} has other rules in this file than its lanes: {found}. No worker with this file opens them. Use the file of the workers; "
        f"or, to change the rule on purpose, stop all workers and run 'ringfence rings adopt {address}'"
    )


def unlike_fault(address: str, worker: str, stated: Rules, own: Rules) -> str | None:
    """Return why a worker must not open a lane without recorded rules while another worker states others."""
    found = _compared(stated, f"at worker {worker}", own)
    if not found:
        return None
    return (
        f"live workers state different rules for {address}, and the lane has recorded none yet: {found}. "
        "Its messages wait, none is lost. Give all workers the same file and restart those that had "
        "another one"
    )


def _compared(theirs: Rules, place: str, own: Rules, own_place: str = OWN_FILE) -> str:
    """Return each rule that differs, with both values; empty = none."""
    return "; ".join(
        f"{key} = {as_written(their)} {place} and {as_written(our)} {own_place}"
        for key, their, our in differences(theirs, own)
    )
