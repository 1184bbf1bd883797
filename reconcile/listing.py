"""Layouts of anomalies for 80 columns, grouped or one by one, and as CSV. Pure."""

import csv
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from re import Pattern
from re import compile as pattern
from typing import Final, TextIO

from reconcile.page import formatting
from reconcile.page.formatting import MEANINGS
from reconcile.page.report_data import Finding
from ringfence_kafka.escaping import printable
from ringfence_kafka.wording import counted

WIDTH: Final = 80
PAUSE_MS: Final = 3_600_000
"""Gap between records of one partition that starts a new line of a group, in milliseconds."""
_PART: Final = pattern(r"^part \d+: ")
_VALUES: Final[tuple[Pattern[str], ...]] = (
    pattern(r"(?<=^hop )\S+(?=: )"),
    pattern(r"\S+/\d+/\d+"),
    pattern(r"(?<![\w.-])\d+(?:, \d+)*(?![\w-])"),
)
"""Parts of a detail that differ between records: a hop, a place, numbers."""


@dataclass(frozen=True, slots=True)
class Shown:
    """An anomaly and its address."""

    address: str
    finding: Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Records of one partition that follow each other within :data:`PAUSE_MS`."""

    partition: int | None
    rows: int
    first: int | None
    """Lowest offset; None = not known. ``last`` is the highest."""
    last: int | None
    begin_ms: int | None
    """Timestamp of the first record; None = not known. ``end_ms`` is that of the last."""
    end_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Anomalies with one name and one reason in one topic."""

    anomaly: str
    address: str
    topic: str
    """Topic of the input, or of the output if the input is not known."""
    reason: str
    lines: Sequence[Line]

    @property
    def rows(self) -> int:
        """Number of anomalies."""
        return sum(line.rows for line in self.lines)


def grouped(found: Iterable[Shown]) -> list[Group]:
    """Group anomalies by name, address, topic and reason: names as they appear, then largest group first."""
    order: dict[str, int] = {}
    kept: dict[tuple[str, str, str, str], list[Finding]] = {}
    for shown in found:
        it = shown.finding
        order.setdefault(it.anomaly, len(order))
        topic = (it.topic if it.partition is not None else it.out_topic) or it.topic
        kept.setdefault((it.anomaly, shown.address, topic, reason(it.detail)), []).append(it)
    groups = [
        Group(
            anomaly=anomaly,
            address=address,
            topic=topic,
            reason=why if len(findings) > 1 else findings[0].detail,
            lines=list(_lines(findings)),
        )
        for (anomaly, address, topic, why), findings in kept.items()
    ]
    return sorted(groups, key=lambda group: (order[group.anomaly], -group.rows))


def reason(detail: str) -> str:
    """Return a detail with a placeholder for each part that differs between records."""
    detail = _PART.sub("", detail)
    for values in _VALUES:
        detail = values.sub("…", detail)
    return detail


def _lines(findings: Iterable[Finding]) -> Iterator[Line]:
    """Split findings into lines by partition and time. Records without a timestamp share a line."""
    partitions: dict[int | None, list[tuple[int | None, int | None]]] = {}
    for it in findings:
        at = (it.partition, it.offset) if it.partition is not None else (it.out_partition, it.out_offset)
        partitions.setdefault(at[0], []).append((it.timestamp, at[1]))
    for partition in sorted(partitions, key=lambda number: -1 if number is None else number):
        runs: list[list[tuple[int | None, int | None]]] = []
        for record in sorted(
            partitions[partition], key=lambda item: tuple(-1 if n is None else n for n in item)
        ):
            if not runs or _apart(runs[-1][-1][0], record[0]):
                runs.append([])
            runs[-1].append(record)
        for run in runs:
            offsets = [offset for _, offset in run if offset is not None]
            yield Line(
                partition=partition,
                rows=len(run),
                first=min(offsets, default=None),
                last=max(offsets, default=None),
                begin_ms=run[0][0],
                end_ms=run[-1][0],
            )


def _apart(one: int | None, other: int | None) -> bool:
    if one is None or other is None:
        return one != other
    return other - one > PAUSE_MS


def in_groups(groups: Iterable[Group]) -> Iterator[str]:
    """Yield a heading with the reason, what to do (once for each name), and a line for each offset range."""
    named = ""
    for group in groups:
        at = "" if group.address == group.topic else f" (address {printable(group.address)})"
        yield f"{group.anomaly} in {printable(group.topic)}{at}: {counted(group.rows, 'row')}"
        yield from _wrapped(printable(group.reason))
        if group.anomaly != named and group.anomaly in MEANINGS:
            yield from _wrapped(f"do: {MEANINGS[group.anomaly].do}")
        named = group.anomaly
        yield f"  {'partition':>9}  {'rows':>7}  {'offsets':<25}  time (UTC)"
        for line in group.lines:
            partition = "" if line.partition is None else str(line.partition)
            yield f"  {partition:>9}  {line.rows:>7,}  {_offsets(line):<25}  {_times(line)}".rstrip()
        yield ""


def _offsets(line: Line) -> str:
    if line.first is None:
        return ""
    return str(line.first) if line.first == line.last else f"{line.first}-{line.last}"


def _times(line: Line) -> str:
    if line.begin_ms is None or line.end_ms is None:
        return ""
    begin, end = formatting.moment(line.begin_ms), formatting.moment(line.end_ms)
    if begin is None or end is None:
        return f"{line.begin_ms} ms"
    first = f"{begin:%Y-%m-%d %H:%M}"
    if begin.date() == end.date():
        return first if f"{end:%H:%M}" == first[-5:] else f"{first} - {end:%H:%M}"
    return f"{first} - {end:%m-%d %H:%M}"


def one_by_one(found: Iterable[Shown]) -> Iterator[str]:
    """Yield place, time, ID, group and problem of each anomaly."""
    for shown in found:
        it = shown.finding
        output = _place(it.out_topic, it.out_partition, it.out_offset)
        places = [
            _place(it.topic, it.partition, it.offset),
            f"-> {output}" if output else "",
            f"(other input {other})"
            if (other := _place(it.topic, it.other_partition, it.other_offset))
            else "",
        ]
        when = None if it.timestamp is None else formatting.moment(it.timestamp)
        time = "" if when is None else f", {when:%Y-%m-%d %H:%M:%S} UTC"
        yield from _wrapped(f"{it.anomaly}  {' '.join(filter(None, places))}{time}", "")
        names = [
            f"{name} {value}" for name, value in (("ID", it.id), ("group", it.group)) if value is not None
        ]
        together = ", ".join(names)
        for text in [together] if len(together) < WIDTH - 2 else names:
            yield f"  {printable(text)}".rstrip()
        yield from _wrapped(printable(it.detail))
        yield ""


def _place(topic: str | None, partition: int | None, offset: int | None) -> str:
    return "" if partition is None or offset is None else f"{printable(topic or '')}/{partition}/{offset}"


def _wrapped(text: str, indent: str = "  ") -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def write_csv(found: Iterable[Shown], file: TextIO) -> None:
    """Write a header and one line for each anomaly."""
    names = ["address", *(field.name for field in fields(Finding))]
    rows = csv.DictWriter(file, names, lineterminator="\n")
    rows.writeheader()
    rows.writerows({"address": shown.address, **asdict(shown.finding)} for shown in found)
