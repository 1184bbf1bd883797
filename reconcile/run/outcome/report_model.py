"""A night as figures: what was counted and collected becomes :class:`reconcile.page.report_data.Figures`. Pure."""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from reconcile.anomalies.names import Anomaly
from reconcile.page import advice
from reconcile.page.advice import Seen
from reconcile.page.escapes import as_text
from reconcile.page.report_data import (
    DAY_MS,
    NAME_MAX,
    AddressFigures,
    Bin,
    Figures,
    Finding,
    GroupBin,
    Lane,
    LargeGroup,
    Moment,
    Ring,
    step_ms,
)
from reconcile.run.frames.distributions import (
    AGE,
    DISTANCE,
    GROUPS,
    LANE,
    LARGEST,
    MOMENT,
    ORPHANS,
    RING,
    STRAYS,
)
from reconcile.run.history.history import LaneCounts, Run
from reconcile.run.measures.counts import Judgement
from reconcile.run.verdict.summary import shown
from ringfence_kafka.config.settings import Settings


class Row(Protocol):
    """A row of Spark's."""

    def __getitem__(self, name: str) -> Any:
        """A column of it."""
        ...


class Numbers:
    """Rows of :data:`reconcile.spark.schemas.NUMBERS`, by what they are of."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows: dict[tuple[int, str], list[Row]] = {}
        for row in rows:
            self._rows.setdefault((row["address"], row["of"]), []).append(row)

    def of(self, address: int, kind: str) -> list[Row]:
        """In the order of ``at``."""
        return sorted(self._rows.get((address, kind), []), key=lambda row: int(row["at"]))


def rings(
    settings: Settings, found: Judgement, recent: Mapping[str, Sequence[Run]], today: str
) -> dict[str, Ring]:
    """What the ring of each address is, and what would be enough.

    Args:
        settings: Capacities and the confidence.
        found: In this night.
        recent: Of each address the nights before that count too.
        today: The day on which it began.
    """
    numbers = Numbers(found.numbers)
    made = {}
    for number, address in enumerate(settings.addresses):
        nights = recent[address.name]
        rows = numbers.of(number, RING)
        seen = Seen(*(rows[0][name] for name in ("a", "at", "b", "c", "d"))) if rows else Seen()
        before = sum(_overruns(night, address.name) for night in nights)
        earliest = [night.earliest[address.name] for night in nights if address.name in night.earliest]
        earliest += [found.times[address.name][0]] if address.name in found.times else []
        made[address.name] = advice.ring(
            address.id_cache_size,
            settings.reconcile.ring_confidence,
            seen,
            overruns=before + found.anomalies[address.name].get(Anomaly.OVERRUN, 0),
            days=_days(today, [night.date for night in nights], earliest),
        )
    return made


def _days(today: str, dates: Sequence[str], earliest: Sequence[int]) -> int:
    """How many the evidence covers: nights may have judged what came long before them. Timestamps (ms) may be any numbers."""
    days = [dt.date.fromisoformat(name).toordinal() for name in (today, *dates)]
    epoch = dt.date(1970, 1, 1).toordinal()
    return days[0] + 1 - min([*days, *(epoch + number // DAY_MS for number in earliest)])


def _overruns(night: Run, address: str) -> int:
    kept: Mapping[str, Any] = night.summary.get("addresses", {}).get(address, {})
    return int(kept.get("anomalies", {}).get(Anomaly.OVERRUN, 0))


def held(base: Run | None, found: Judgement, recreated: Mapping[str, bool]) -> LaneCounts:
    """IDs that were accepted in each lane since its ring was new, or emptied by order."""
    made: LaneCounts = {}
    for name, lanes in found.accepted.items():
        before = base.held.get(name, {}) if base and not recreated[name] else {}
        made[name] = {lane: before.get(lane, 0) + lanes.get(lane, 0) for lane in {*before, *lanes}}
        made[name] |= found.emptied[name]
    return made


def figures(
    settings: Settings,
    document: Mapping[str, Any],
    found: Judgement,
    rings: Mapping[str, Ring],
    held: LaneCounts,
    lanes: Mapping[str, int],
) -> Figures:
    """The whole page.

    Args:
        settings: Addresses, and where the cluster is.
        document: ``summary.json``.
        found: What was counted and collected.
        rings: By address.
        held: As :func:`held` has it.
        lanes: How many each address has.
    """
    began = f"{document['began'][:16].replace('T', ' ')} UTC"
    base = document["from_night"]
    numbers = Numbers(found.numbers)
    return Figures(
        title=f"Run {document['night']}",
        subtitle=f"{began}, " + ("from the beginning" if base is None else f"since run {base}"),
        verdict=document["verdict"],
        bootstrap_servers=settings.kafka.bootstrap_servers,
        addresses=[
            AddressFigures(
                name=address.name,
                counts={
                    name: document["addresses"][address.name][name] for name in shown(document["addresses"])
                },
                ring=rings[address.name],
                step_ms=step_ms(*found.times.get(address.name, (0, 0))),
                **_drawn(numbers, number),
                lanes=_lanes(
                    found.lanes[address.name],
                    {row["at"]: row for row in numbers.of(number, LANE)},
                    {row["at"]: row["a"] for row in numbers.of(number, ORPHANS)},
                    {lane: min(n, address.id_cache_size) for lane, n in held[address.name].items()},
                    lanes[address.name],
                ),
                anomalies=document["addresses"][address.name]["anomalies"],
                findings=[finding(row) for row in found.findings if row["address"] == address.name],
            )
            for number, address in enumerate(settings.addresses)
        ],
        advice=[
            *(
                sentence
                for address in settings.addresses
                for sentence in advice.torn(
                    address.name,
                    document["addresses"][address.name]["anomalies"].get(Anomaly.TORN, 0),
                    (finding(row) for row in found.findings if row["address"] == address.name),
                )
            ),
            *advice.sentences(document["addresses"], settings.reconcile.ring_confidence),
        ],
    )


def _drawn(numbers: Numbers, address: int) -> dict[str, Any]:
    moments = numbers.of(address, MOMENT)
    return {
        "moments": [
            Moment(row["at"], row["a"], row["b"], max(0, row["c"])) for row in moments if row["at"] != STRAYS
        ],
        "strays": sum(row["a"] for row in moments if row["at"] == STRAYS),
        "distances": [Bin(row["at"], row["a"]) for row in numbers.of(address, DISTANCE)],
        "ages": [Bin(row["at"], row["a"]) for row in numbers.of(address, AGE)],
        "group_sizes": [GroupBin(row["at"], row["a"], row["b"]) for row in numbers.of(address, GROUPS)],
        "groups_largest": [LargeGroup(text(row["name"]), row["a"]) for row in numbers.of(address, LARGEST)],
    }


def _lanes(
    counted: Mapping[int, Mapping[str, int]],
    resends: Mapping[int, Row],
    orphans: Mapping[int, int],
    used: Mapping[int, int],
    lanes: int,
) -> list[Lane]:
    made = []
    for lane in range(lanes):
        here = counted.get(lane, {})
        dropped = max(0, here.get("dropped", 0) - orphans.get(lane, 0))
        apart = [resends[lane][name] for name in ("a", "b", "c")] if lane in resends else []
        made.append(
            Lane(
                lane,
                here.get("input", 0),
                here.get("accepted", 0),
                here.get("diverted", 0)
                + dropped
                + here.get("bridge_diverted", 0)
                + here.get("bridge_dropped", 0),
                here.get("waiting", 0) + here.get("backlog", 0),
                used.get(lane, 0),
                *apart,
            )
        )
    return made


def finding(row: Row) -> Finding:
    """An anomaly as the results have it."""
    plain = (
        "anomaly", "topic", "partition", "offset", "out_topic", "out_partition", "out_offset", "other_partition",
        "other_offset",
    )  # fmt: skip
    detail = row["detail"] if len(row["detail"]) <= NAME_MAX else f"{row['detail'][:NAME_MAX]}…"
    id_, group = (None if row[name] is None else text(row[name]) for name in ("id", "group"))
    # What may be something else than a GAP is there to be looked at.
    gone = row["anomaly"] == Anomaly.GAP and row["suspected"] is None
    return Finding(**{name: row[name] for name in plain}, id=id_, group=group, detail=detail, gone=gone)


def text(value: bytes) -> str:
    """Bytes as a person reads them: what is no UTF-8, or cannot be seen, is escaped; only the beginning of very many."""
    beginning = as_text(bytes(value[:NAME_MAX]))
    return beginning if len(value) <= NAME_MAX else f"{beginning}…"
