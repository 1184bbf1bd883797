"""Figures of the report page, from counts and collected rows of a run. Pure."""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import Row

from reconcile.anomalies.names import Anomaly
from reconcile.page import advice
from reconcile.page import report_data as data
from reconcile.page.formatting import as_text
from reconcile.run.frames import distributions as kinds
from reconcile.run.history.history import LaneCounts, Run
from reconcile.run.measures.counts import Judgement
from reconcile.run.verdict.summary import shown
from ringfence_kafka.config.settings import Settings


class Numbers:
    """Rows of :data:`reconcile.spark.schemas.NUMBERS` by address and kind."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows: dict[tuple[int, str], list[Row]] = {}
        for row in rows:
            self._rows.setdefault((row["address"], row["of"]), []).append(row)

    def rows_of(self, address: int, kind: str) -> list[Row]:
        """Return the rows in the order of ``at``."""
        return sorted(self._rows.get((address, kind), []), key=lambda row: int(row["at"]))


def rings(
    settings: Settings, found: Judgement, recent: Mapping[str, Sequence[Run]], today: str
) -> dict[str, data.Ring]:
    """Return the ring of each address with its advised size. ``recent``: earlier runs that count."""
    numbers = Numbers(found.numbers)
    made = {}
    for number, address in enumerate(settings.addresses):
        runs = recent[address.name]
        rows = numbers.rows_of(number, kinds.RING)
        resends, needed, p50, p99, largest = (rows[0][n] if rows else 0 for n in ("a", "at", "b", "c", "d"))
        enough = numbers.rows_of(number, kinds.ENOUGH)
        capacity, span_ms = address.ring_capacity, _span_ms(address.name, runs, found)
        earlier = [run.summary.get("addresses", {}).get(address.name, {}) for run in runs]
        before = sum(kept.get("anomalies", {}).get(Anomaly.OVERRUN, 0) for kept in earlier)
        earliest = [run.earliest[address.name] for run in runs if address.name in run.earliest]
        earliest += [found.times[address.name][0]] if address.name in found.times else []
        made[address.name] = data.Ring(
            capacity=capacity,
            recommended=advice.recommended(needed, capacity, span_ms),
            confidence=settings.reconcile.ring_confidence,
            resends=resends,
            overruns=before + found.anomalies[address.name].get(Anomaly.OVERRUN, 0),
            days=_days(today, [run.date for run in runs], earliest),
            resend_distance_p50=p50,
            resend_distance_p99=p99,
            resend_distance_max=largest,
            needed=needed,
            span_ms=span_ms,
            enough=enough[0]["at"] if enough else 0,
            grows_from=address.id_cache_size if address.id_cache_size_max else 0,
        )
    return made


def _span_ms(name: str, runs: Sequence[Run], found: Judgement) -> int:
    """Return the time between an address's first and last record in these runs and this one, in ms."""
    times = [*found.times.get(name, ())]
    for run in runs:
        times += run.summary.get("addresses", {}).get(name, {}).get("times") or []
        times += [run.earliest[name]] if name in run.earliest else []
    return max(times, default=0) - min(times, default=0)


def conflicts(found: Judgement, address: int) -> int:
    """Return the number of an address's duplicates whose value differs from their original's."""
    return sum(row["a"] for row in Numbers(found.numbers).rows_of(address, kinds.CONFLICTS))


def _days(today: str, dates: Sequence[str], earliest: Sequence[int]) -> int:
    """Return the days that the evidence covers, by ordinals: any timestamp (ms) works, not only dates."""
    days = [dt.date.fromisoformat(name).toordinal() for name in (today, *dates)]
    epoch = dt.date(1970, 1, 1).toordinal()
    return days[0] + 1 - min([*days, *(epoch + number // data.DAY_MS for number in earliest)])


def held(base: Run | None, found: Judgement, recreated: Mapping[str, bool]) -> LaneCounts:
    """Return the IDs that each lane accepted since its ring was new or emptied by order."""
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
    rings: Mapping[str, data.Ring],
    held: LaneCounts,
    lanes: Mapping[str, Sequence[int]],
) -> data.Figures:
    """Return the figures of the page.

    ``document`` is that of ``summary.json``, ``held`` the IDs in rings, ``lanes`` the ring of each lane.
    """
    began = f"{document['began'][:16].replace('T', ' ')} UTC"
    base = document["from_night"]
    numbers = Numbers(found.numbers)
    findings = {name: [finding(row) for row in found.findings if row["address"] == name] for name in rings}
    shares = {name: document["addresses"][name]["overrun_share"] for name in rings}
    judged = {
        name: replace(ring, overrun_share=shares[name], overrun=shares[name] > document["overrun_max"])
        for name, ring in rings.items()
    }
    return data.Figures(
        title=f"Run {document['night']}",
        subtitle=f"{began}, " + ("from the beginning" if base is None else f"since run {base}"),
        verdict=document["verdict"],
        bootstrap_servers=settings.kafka.bootstrap_servers,
        addresses=[
            data.AddressFigures(
                name=address.name,
                counts={
                    name: document["addresses"][address.name][name] for name in shown(document["addresses"])
                },
                ring=judged[address.name],
                step_ms=data.step_ms(*found.times.get(address.name, (0, 0))),
                **_drawn(numbers, number),
                lanes=_lanes(
                    found.lanes[address.name],
                    {row["at"]: row for row in numbers.rows_of(number, kinds.LANE)},
                    {row["at"]: row["a"] for row in numbers.rows_of(number, kinds.ORPHANS)},
                    {lane: min(n, address.ring_capacity) for lane, n in held[address.name].items()},
                    lanes[address.name],
                ),
                anomalies=document["addresses"][address.name]["anomalies"],
                findings=findings[address.name],
            )
            for number, address in enumerate(settings.addresses)
        ],
        advice=[
            *(
                sentence
                for name, several in findings.items()
                for sentence in advice.torn(
                    name, document["addresses"][name]["anomalies"].get(Anomaly.TORN, 0), several
                )
            ),
            *advice.broken_promises(document["addresses"]),
            *advice.sentences(judged, document["overrun_max"]),
        ],
    )


def past_runs(finished: Mapping[int, Run], document: Mapping[str, Any]) -> list[data.PastRun]:
    """Return the last runs whose summaries are kept, up to this run."""
    earlier = [finished[number].summary for number in sorted(finished) if number != document["night"]]
    kept = [summary for summary in earlier if "night" in summary]
    return [_past(summary) for summary in [*kept, document][-data.RUNS_MAX :]]


def _past(summary: Mapping[str, Any]) -> data.PastRun:
    addresses = summary["addresses"].values()
    return data.PastRun(
        number=summary["night"],
        began=summary.get("began", ""),
        verdict=summary["verdict"],
        messages=sum(address.get("input", 0) for address in addresses),
        duplicates=sum(address.get("duplicates", 0) for address in addresses),
        anomalies=sum(sum(address.get("anomalies", {}).values()) for address in addresses),
        seconds=summary.get("seconds"),
    )


def _drawn(numbers: Numbers, address: int) -> dict[str, Any]:
    moments = numbers.rows_of(address, kinds.MOMENT)
    return {
        "moments": [
            data.Moment(row["at"], row["a"], row["b"], max(0, row["c"]))
            for row in moments
            if row["at"] != kinds.STRAYS
        ],
        "strays": sum(row["a"] for row in moments if row["at"] == kinds.STRAYS),
        "distances": [data.Bin(row["at"], row["a"]) for row in numbers.rows_of(address, kinds.DISTANCE)],
        "ages": [data.Bin(row["at"], row["a"]) for row in numbers.rows_of(address, kinds.AGE)],
        "group_sizes": [
            data.GroupBin(row["at"], row["a"], row["b"]) for row in numbers.rows_of(address, kinds.GROUPS)
        ],
        "groups_largest": [
            data.LargeGroup(text(row["name"]), row["a"]) for row in numbers.rows_of(address, kinds.LARGEST)
        ],
    }


def _lanes(
    counted: Mapping[int, Mapping[str, int]],
    resends: Mapping[int, Row],
    orphans: Mapping[int, int],
    used: Mapping[int, int],
    lanes: Sequence[int],
) -> list[data.Lane]:
    made = []
    for lane, ring in enumerate(lanes):
        here = counted.get(ring, {})
        dropped = max(0, here.get("dropped", 0) - orphans.get(ring, 0))
        apart = [resends[ring][name] for name in ("a", "b", "c")] if ring in resends else []
        made.append(
            data.Lane(
                lane,
                here.get("input", 0),
                here.get("accepted", 0),
                here.get("diverted", 0)
                + dropped
                + here.get("bridge_diverted", 0)
                + here.get("bridge_dropped", 0),
                here.get("waiting", 0) + here.get("backlog", 0),
                used.get(ring, 0),
                *apart,
            )
        )
    return made


def finding(row: Row) -> data.Finding:
    """Return an anomaly for the page."""
    plain = (
        "anomaly", "topic", "partition", "offset", "out_topic", "out_partition", "out_offset", "other_partition",
        "other_offset", "timestamp",
    )  # fmt: skip
    detail = row["detail"] if len(row["detail"]) <= data.NAME_MAX else f"{row['detail'][: data.NAME_MAX]}…"
    id_, group = (None if row[name] is None else text(row[name]) for name in ("id", "group"))
    # A GAP with a suspected anomaly may be more than a gap, so a person should look at it.
    gone = row["anomaly"] == Anomaly.GAP and row["suspected"] is None
    return data.Finding(**{name: row[name] for name in plain}, id=id_, group=group, detail=detail, gone=gone)


def text(value: bytes) -> str:
    """Return bytes as text: invisible and invalid bytes are escaped, and long text is cut."""
    beginning = as_text(bytes(value[: data.NAME_MAX]))
    return beginning if len(value) <= data.NAME_MAX else f"{beginning}…"
