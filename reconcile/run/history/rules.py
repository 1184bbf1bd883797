"""Rules by which a run judged its addresses: the next run compares its own with them. Pure.

Workers use the configuration of their start, so a change in the file may not be in force yet.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from reconcile.anomalies.names import Anomaly, Doubt
from reconcile.run.history import renames
from reconcile.run.history.cut import AddressCut
from reconcile.run.history.history import Run
from reconcile.run.history.rings import Rings
from ringfence_kafka.config.settings import AddressSettings

_KEPT: Final = (
    "input_topic", "accepted_topic", "duplicates_topic", "quarantine_topic", "duplicates", "duplicate_id_headers",
    "duplicate_id_from", "group_header", "default_group", "id_max_age", "id_cache_size", "transaction_addresses",
    "partitioner", "mode",
)  # fmt: skip
_PARTITIONER: Final = "partitioner"
_SIZE: Final = "id_cache_size"
_SIZE_MAX: Final = "id_cache_size_max"
_PROMISE: Final = "id_min_age"
_LANES: Final = "lanes"
_ON_CONFLICT: Final = "on_conflict"
_ABSENT: Final[Mapping[str, Any]] = {_LANES: 0, _PROMISE: [0, 0], _ON_CONFLICT: ""}
"""Values for keys that earlier releases did not have."""
_LISTED: Final = "transaction_addresses"
_OF_IDS: Final = frozenset({Anomaly.LOST, Anomaly.WRONG_VERDICT, Anomaly.FORGOTTEN, Anomaly.CROSS_LANE})
_OF_GROUPS: Final = _OF_IDS | {Anomaly.REORDERED, Anomaly.CORRUPTED}
_DOUBTED: Final = {
    "input_topic": frozenset({Anomaly.LOST, Anomaly.WRONG_VERDICT, Anomaly.PHANTOM}),
    "accepted_topic": _OF_IDS,
    "duplicates_topic": _OF_IDS,
    "quarantine_topic": frozenset({Anomaly.LOST}),
    "duplicate_id_headers": _OF_IDS,
    "duplicate_id_from": _OF_IDS,
    "id_max_age": _OF_IDS,
    _PROMISE: _OF_IDS,
    _ON_CONFLICT: _OF_IDS,
    "group_header": _OF_GROUPS,
    "default_group": _OF_GROUPS,
    "transaction_addresses": _OF_IDS | {Anomaly.PHANTOM, Anomaly.TORN},
    "partitioner": frozenset({Anomaly.FORGOTTEN, Anomaly.CROSS_LANE, Anomaly.REORDERED}),
    "lanes": _OF_IDS | {Anomaly.REORDERED},
}
"""Key → anomalies that are uncertain in the first run after its change: the old value judged some input."""
_OF_PARTS: Final = frozenset(
    {"accepted_topic", "duplicate_id_headers", "duplicate_id_from", "group_header", "default_group"}
)
"""Keys of an address that concern parts sent to it by transactions of other addresses."""
_OF_OLD_OUTPUTS: Final = frozenset(Anomaly) - {
    Anomaly.LOST,
    Anomaly.WRONG_VERDICT,
    Anomaly.OVERRUN,
    Anomaly.TORN,
    Anomaly.GAP,
}
"""Anomalies that outputs of a deleted topic may cause, if a new topic has its name."""


def kept(address: AddressSettings) -> dict[str, Any]:
    """Return an address's rules to keep, in JSON types, without unused newer keys: old runs compare equal."""
    found = {name: getattr(address, name) for name in _KEPT}
    if address.id_min_age:
        found |= {_PROMISE: _promise_of(address), _SIZE_MAX: address.id_cache_size_max}
    if address.on_conflict == "accept":
        found[_ON_CONFLICT] = address.on_conflict
    if address.lanes:
        found[_LANES] = address.lanes
    return {name: list(item) if isinstance(item, tuple) else item for name, item in found.items()}


def _promise_of(address: AddressSettings) -> list[int]:
    """Return the promise in time: milliseconds, and IDs kept at any age; [0, 0] = no promise."""
    age = round(address.id_min_age * 1000)
    return [age, address.id_cache_size] if age else [0, 0]


def size_kept(rules: Mapping[str, Any]) -> int | None:
    """Return the ring size from the rules of a run; None = the run did not judge the address."""
    size = rules.get(_SIZE_MAX, rules.get(_SIZE))
    return None if size is None else int(size)


def promised(
    addresses: Sequence[AddressSettings],
    cuts: Mapping[str, AddressCut],
    chain: Sequence[Run],
    rings: Sequence[Rings],
) -> list[dict[int, int]]:
    """Return by address and ring the size that the ring had at least, unless the journal shows another.

    A worker that opens a written lane with another size records it. Without such an event the size is the
    smallest configured since the lane's first ID, or that of the last run if the lane has no IDs. Sizes
    configured before the last full ring of IDs do not count. ``chain``: runs, the latest first.
    """
    return [
        {
            ring: min([address.ring_capacity, *_sizes(address, cuts[address.name], ring, chain, of)])
            for ring in of.all
        }
        for address, of in zip(addresses, rings, strict=True)
    ]


def _sizes(
    address: AddressSettings, cut: AddressCut, ring: int, chain: Sequence[Run], rings: Rings
) -> Iterator[int]:
    if ring in rings.now and (recorded := cut.recorded.get(ring - rings.start)):
        yield recorded.capacity  # a ring keeps its recorded size until all live workers agree on a new one
    since = 0
    for number, run in enumerate(chain):
        if since >= address.ring_capacity:
            return
        size = size_kept(run.rules.get(address.name, {}))
        accepted = run.accepted.get(address.name, {}).get(ring, 0)
        if size is not None and (number == 0 or accepted):
            yield size
        since += accepted


def diverts(address: AddressSettings, base: Run | None) -> bool:
    """Return whether the duplicates topic has all duplicates since the last run."""
    return address.duplicates == "divert" and _before(address, base).get("duplicates", "divert") == "divert"


def observes(address: AddressSettings, base: Run | None) -> bool:
    """Return whether duplicates pass by configuration, now and in the last run."""
    before = _before(address, base)
    return address.observes and (not before or before.get("mode") == address.mode)


def observed(address: AddressSettings, base: Run | None) -> bool:
    """Return whether duplicates passed by configuration in the last run."""
    return bool(_before(address, base).get("mode") == "observe")


def enforces(address: AddressSettings, base: Run | None) -> bool:
    """Return whether duplicates must not pass: enforced in this run and the last; else it may have observed."""
    return not address.observes and bool(_before(address, base)) and not observed(address, base)


def diverts_conflicts(address: AddressSettings, base: Run | None) -> bool:
    """Return whether the duplicates topic has all conflicts since the last run."""
    known = not _before(address, base) or (base is not None and address.duplicates_topic in base.positions)
    return address.on_conflict == "divert" and known


def detects(addresses: Sequence[AddressSettings], events: Collection[int], base: Run | None) -> set[int]:
    """Return numbers of the addresses that detect duplicates now, or did since the last run.

    A ring that is off in the configuration stays on until the workers restart, which writes an event to the
    journal.
    """
    return {
        n
        for n, address in enumerate(addresses)
        if address.id_cache_size or n in events or (base and base.capacity(address.name))
    }


def rules_of(
    addresses: Sequence[AddressSettings],
    cuts: Mapping[str, AddressCut],
    chain: Sequence[Run],
    number: int,
    largest: Sequence[int],
    detects: Collection[int],
    observing: Collection[int],
    dropping: Collection[int],
    complete: Mapping[str, bool],
) -> list[dict[str, Any]]:
    """Return :data:`reconcile.spark.schemas.RULES` of the addresses in run ``number``.

    ``chain``: runs, the latest first; ``detects`` is the result of :func:`detects`, ``observing`` and
    ``dropping`` are those of :class:`reconcile.run.measures.counts.Judgement`, and ``complete`` is that of
    :func:`reconcile.run.outcome.carry_over.complete`.
    """
    base = chain[0] if chain else None
    return [
        {
            "address": n,
            "max_age_ms": round(address.id_max_age * 1000),
            "min_age_ms": _promise_of(address)[0],
            "size": _promise_of(address)[1],
            "largest": largest[n],
            "divert": diverts(address, base) and n not in observing and n not in dropping,
            "observes": n in observing,
            "enforces": enforces(address, base),
            "diverts_conflicts": diverts_conflicts(address, base) and n not in observing,
            "detects": n in detects,
            "outputs_gone": any(
                topic.lost for role, topic in cuts[address.name].topics().items() if role != "input"
            ),
            "targets_gone": any(topic.lost for topic in cuts[address.name].targets),
            "evidence_deleted": not complete[address.name],
            "lanes_whole": lanes_whole(address.name, cuts[address.name], base, largest[n]),
            "whole_since": whole_since(address.name, cuts[address.name], base, number),
            "moved": moved(address, chain, number),
            "renamed": renames.since(address, chain),
        }
        for n, address in enumerate(addresses)
    ]


def evidence_deleted(cut: AddressCut) -> bool:
    """Return whether rings may know IDs whose evidence is deleted."""
    return bool(cut.input.lost or cut.accepted.lost or any(target.lost for target in cut.targets))


def lanes_whole(address: str, cut: AddressCut, base: Run | None, largest: int) -> list[int]:
    """Return lanes whose rings held only known IDs when the run began; empty if evidence is missing."""
    if base is None or evidence_deleted(cut):
        return []
    return sorted(lane for lane, count in base.known.get(address, {}).items() if count >= largest)


def moved(address: AddressSettings, chain: Sequence[Run], number: int) -> int:
    """Return the last run that may have judged by another partitioner, with other home lanes; 0 = none.

    That is the first run with the present partitioner, because workers switched at an unknown time before its
    end.
    """
    later = number
    for run in chain:
        rules = run.rules.get(address.name, {})
        if rules.get(_PARTITIONER, address.partitioner) != address.partitioner:
            return later
        later = run.number
    return 0


def whole_since(address: str, cut: AddressCut, base: Run | None, number: int) -> int:
    """Return the first run since which no accepted ID is missing.

    Lost inputs came before the other inputs of their run. The time of lost outputs is not known.
    """
    if cut.accepted.lost or any(target.lost for target in cut.targets):
        return number + 1
    before = base.whole_since.get(address, 0) if base else 0
    return number if cut.input.lost else before


def doubts(
    addresses: Sequence[AddressSettings],
    cuts: Mapping[str, AddressCut],
    base: Run | None,
    rings: Sequence[Rings],
) -> list[Doubt]:
    """Return anomalies that evidence cannot prove in this run, with the reason."""
    found = []
    for number, address in enumerate(addresses):
        if cuts[address.name].journal:
            why = "the journal is incomplete"
            found.append(Doubt(number, frozenset({Anomaly.FORGOTTEN}), why))
        if cuts[address.name].input.recreated:
            why = "the input was deleted and created again, and the output may be of the old one"
            found.append(Doubt(number, _OF_OLD_OUTPUTS, why))
        if former := cuts[address.name].former:
            why = (
                f"its address was called {former}, and no lane reads what waits in the forward topic of "
                "that name"
            )
            found.append(Doubt(number, _OF_IDS, why))
        # the journal shows what a change of lanes has moved
        told = {_LANES} if rings[number].regroups else set()
        changed = [key for key in _changed(address, base) if key not in told]
        if changed:
            names = frozenset[Anomaly]().union(*(_DOUBTED[key] for key in changed))
            found.append(Doubt(number, names, f"{' and '.join(changed)} changed since the last run"))
        found += _doubts_of_lanes(number, address, cuts[address.name], addresses, rings[number])
        found += _doubts_of_transactions(number, address, addresses, base)
    return found


def doubts_of_modes(partly: Collection[int]) -> list[Doubt]:
    """Return doubts about addresses in observe mode whose accepted records do not all say so."""
    why = "accepted records without _RF_VERDICT show that a lane did not observe all the time"
    return [Doubt(number, frozenset({Anomaly.LOST}), why) for number in sorted(partly)]


def _doubts_of_lanes(
    number: int,
    address: AddressSettings,
    cut: AddressCut,
    addresses: Sequence[AddressSettings],
    rings: Rings,
) -> Iterator[Doubt]:
    """Yield a doubt if lanes recorded other rules than this file's: workers judge by the recorded ones."""
    ours = _by_key(address)
    for other in addresses:
        ours |= {f"{other.name}: {key}": value for key, value in _by_key(other).items()}
    unlike: dict[str, list[int]] = {}
    for lane, said in sorted(cut.recorded.items()):
        if lane >= rings.layout.lanes:  # lane of a former layout
            continue
        promise = [said.min_age_ms, said.size]
        recorded = {**said.rules, "id_max_age": said.max_age_ms, _PROMISE: promise, _LANES: said.lanes}
        for key, value in recorded.items():
            if key in ours and ours[key] != value:
                unlike.setdefault(key, []).append(lane)
    if unlike:
        names = frozenset[Anomaly]().union(
            *(_DOUBTED.get(key, _OF_GROUPS | {Anomaly.TORN}) for key in unlike)
        )
        lanes = sorted({lane for value in unlike.values() for lane in value})
        why = (
            f"lanes {', '.join(map(str, lanes))} of {address.name} have another "
            f"{' and '.join(sorted(unlike))} than this file: run it with the workers' file"
        )
        yield Doubt(number, names, why)


def _by_key(address: AddressSettings) -> dict[str, Any]:
    found = {key: value for key, value in kept(address).items() if key in _DOUBTED}
    age = round(address.id_max_age * 1000)
    return found | {"id_max_age": age, _PROMISE: _promise_of(address), _LANES: address.lanes}


def _changed(address: AddressSettings, base: Run | None) -> list[str]:
    now, before = kept(address), _before(address, base)
    if before:
        now, before = {**_ABSENT, **now}, {**_ABSENT, **before}
    return [key for key in _DOUBTED if key in before and before[key] != now[key]]


def _doubts_of_transactions(
    number: int, address: AddressSettings, addresses: Sequence[AddressSettings], base: Run | None
) -> Iterator[Doubt]:
    """Yield doubts from changes at other addresses that share transactions with this one."""
    names = address.transaction_addresses
    if base is None:
        return
    for other in addresses:
        changed = _changed(other, base)
        if _LISTED in changed and address.name in _before(other, base).get(_LISTED, ()):
            why = f"{_LISTED} of {other.name} changed since the last run"
            yield Doubt(number, frozenset({Anomaly.PHANTOM}), why)
        of_parts = [key for key in changed if key in _OF_PARTS]
        if of_parts and other.name in names:
            why = f"{' and '.join(of_parts)} of {other.name} changed since the last run"
            yield Doubt(number, _OF_GROUPS | {Anomaly.TORN}, why)
    if names and base.rules.get(address.name) and base.left_by(address.name) != base.number:
        why = f"{address.name} was not configured in the last run, which has read {' and '.join(names)}"
        yield Doubt(number, frozenset({Anomaly.LOST, Anomaly.WRONG_VERDICT, Anomaly.TORN}), why)


def _before(address: AddressSettings, base: Run | None) -> Mapping[str, Any]:
    return base.rules.get(address.name, {}) if base else {}
