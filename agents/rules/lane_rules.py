"""Rules of a lane (ID, group, home) and limits of its ring, as its meta record stores them. Pure.

A worker with other rules does not open the lane. Recorded limits apply until all live workers state the same new ones.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from ringfence_kafka.config.settings import AddressSettings
from tables.codec import Meta
from tables.promise import Promise

Rules = Mapping[str, Any]
"""Values by configuration key, as JSON returns them. A key of a target address has the form ``<address>: <key>``."""

OWN_FILE: Final = "in this worker's file"
"""Part of each text about rules. Texts from checks of topics do not contain it."""
TOPICS: Final = ("input_topic", "accepted_topic")


class Limits(NamedTuple):
    """Limits of a ring's memory. Each field is a configuration key."""

    id_cache_size: int
    """Number of IDs."""
    id_max_age: float
    """Seconds; 0 = no limit."""
    persist_id_cache: bool
    id_min_age: float = 0
    """Seconds; 0 = no promise in time."""
    id_cache_size_max: int = 0
    """Number of IDs; 0 = no promise in time."""

    @property
    def capacity(self) -> int:
        """Number of IDs that the ring has room for."""
        return self.id_cache_size_max or self.id_cache_size

    @property
    def promise(self) -> Promise | None:
        """Initial promise for ``id_min_age``; None = no promise."""
        return Promise(self.id_cache_size, round(self.id_min_age * 1000)) if self.id_min_age else None


def rules_of(address: AddressSettings, targets: Iterable[AddressSettings] = ()) -> dict[str, Any]:
    """Return the rules in a configuration for the lanes of an address. ``targets``: addresses that its transactions may reach."""
    found = _own_rules(address)
    for target in targets:
        found |= {
            f"{target.name}: {key}": value for key, value in _own_rules(target).items() if key != TOPICS[0]
        }
    return found


def _own_rules(address: AddressSettings) -> dict[str, Any]:
    """Keys without an effect are left out, because a change of them changes no verdict."""
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
    """Return the limits in a configuration."""
    # whole milliseconds, as in the meta record
    most, least = (round(age * 1000) / 1000 for age in (address.id_max_age, address.id_min_age))
    return Limits(address.id_cache_size, most, address.persist_id_cache, least, address.id_cache_size_max)


def recorded_limits(meta: Meta) -> Limits:
    """Return the limits in the meta record of a lane's last transaction."""
    return limits_in_force(meta.capacity, meta.max_age_ms, meta.promise, meta.persistent)


def limits_in_force(capacity: int, max_age_ms: int, promise: Promise | None, persistent: bool) -> Limits:
    """Return the limits of a ring."""
    if promise is None:
        return Limits(capacity, max_age_ms / 1000, persistent)
    return Limits(promise.size, max_age_ms / 1000, persistent, promise.min_age_ms / 1000, capacity)


def shown(limits: Limits) -> str:
    """Return limits in the syntax of the configuration file."""
    return ", ".join(f"{key} = {as_written(value)}" for key, value in limits._asdict().items())


def with_limits(address: AddressSettings, limits: Limits) -> AddressSettings:
    """Return the address with these limits in place of its own."""
    return address if limits_of(address) == limits else address.model_copy(update=limits._asdict())


def differences(recorded: Rules, own: Rules) -> list[tuple[str, Any, Any]]:
    """Return key, recorded value and own value of each rule that differs.

    A rule that only one side states is not compared: the target addresses differ, or another version knows other rules.
    """
    return [(key, recorded[key], own[key]) for key in own if key in recorded and recorded[key] != own[key]]


def key_of(rule: str) -> str:
    """Return the configuration key of a rule, without the target address."""
    return rule.rpartition(" ")[2]


def as_written(value: Any) -> str:
    """Return a value in the syntax of the configuration file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(as_written, value))}]"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def rules_fault(address: str, recorded: Rules, own: Rules) -> str | None:
    """Return why a worker must not open a lane: each rule that differs, with both values, and the remedy. None = nothing differs."""
    if not (found := _compared(recorded, "in the lane's record", own)):
        return None
    return (
        f"this worker's file has other rules than the lane: {found}. Its messages wait, none is lost. Give this worker the file of "
        f"the other workers and start it again. To change the rule on purpose, stop all workers and run 'ringfence rings adopt {address}'"
    )


def file_fault(address: str, recorded: Rules, own: Rules) -> str | None:
    """Return why no worker with this file can open a lane. :func:`rules_fault` is for a worker that tried."""
    if not (found := _compared(recorded, "in the record of its lanes", own, "in this file")):
        return None
    return (
        f"{address} has other rules in this file than its lanes: {found}. No worker with this file opens them. Use the file of the workers; "
        f"or, to change the rule on purpose, stop all workers and run 'ringfence rings adopt {address}'"
    )


def unlike_fault(address: str, worker: str, stated: Rules, own: Rules) -> str | None:
    """Return why a worker must not open a lane without recorded rules: another worker states other rules. None = nothing differs."""
    if not (found := _compared(stated, f"at worker {worker}", own)):
        return None
    return (
        f"live workers state different rules for {address}, and the lane has recorded none yet: {found}. "
        "Its messages wait, none is lost. Give all workers the same file and restart those that had "
        "another one"
    )


def _compared(theirs: Rules, place: str, own: Rules, own_place: str = OWN_FILE) -> str:
    """Return each rule that differs, with both values; empty if none differs."""
    return "; ".join(
        f"{key} = {as_written(their)} {place} and {as_written(our)} {own_place}"
        for key, their, our in differences(theirs, own)
    )
