"""Report page of a run or an audit: one self-contained HTML file.

All text from data is escaped in one place (``finalize`` and autoescape of the templates), because producers
choose IDs, groups and topics. The page's Content-Security-Policy forbids scripts and outside resources.
"""

import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from reconcile.page import formatting, plots, prose, trends
from reconcile.page.report_data import FINDINGS_MAX, AddressFigures, Figures, Finding, Lane
from ringfence_kafka.errors import RingfenceError

OPEN_MAX: Final = 5  # findings of an anomaly shown at once; the others are folded
_ALLOWED: Final = "OVERRUN"  # the only anomaly that is allowed, up to reconcile.overrun_max
_PRINTED: Final = ("timestamp", "partition", "offset", "headers", "key")
TIMEOUT_MS: Final = 10_000  # do not wait longer for a record that was deleted


class Place(NamedTuple):
    """Place of one record."""

    role: str
    topic: str
    partition: int
    offset: int
    gone: bool  # the record was deleted or replaced
    commands: Sequence[str]
    """Commands that print the record; empty = it does not exist, or a name has control characters."""


def _places(finding: Finding, servers: str) -> Iterator[Place]:
    """Yield the known places of a finding: input, output, and other input."""
    gone = finding.gone
    for role, topic, partition, offset in (
        ("input", finding.topic, finding.partition, finding.offset),
        ("output", finding.out_topic, finding.out_partition, finding.out_offset),
        ("other input", finding.topic, finding.other_partition, finding.other_offset),
    ):
        if topic is not None and partition is not None and offset is not None:
            there = not gone and min(partition, offset) >= 0 and f"{topic}{servers}".isprintable()
            commands = _commands(servers, topic, str(partition), str(offset)) if there else ()
            yield Place(role, topic, partition, offset, gone, commands)
            gone = False  # only the first place may be gone


def _commands(servers: str, topic: str, partition: str, offset: str) -> Sequence[str]:
    """Return commands of kcat and of Kafka's own tool (option names of 4.1) for one record."""
    kcat = [
        "kcat", "-C", "-b", servers, "-t", topic, "-p", partition, "-o", offset, "-c", "1", "-e", "-f",
        r"%p/%o %h %k %s\n",
    ]  # fmt: skip
    console_consumer = [
        "kafka-console-consumer.sh", "--bootstrap-server", servers, "--topic", topic, "--partition", partition,
        "--offset", offset, "--max-messages", "1", "--timeout-ms", str(TIMEOUT_MS),
    ]  # fmt: skip
    for item in _PRINTED:
        console_consumer += ["--property", f"print.{item}=true"]
    return shlex.join(kcat), shlex.join(console_consumer)


class FiguresUnreadableError(RingfenceError):
    """The file is not a figures.json of this version."""


class _Found(NamedTuple):
    it: Finding
    places: Sequence[Place]


@dataclass(frozen=True, slots=True)
class _Anomaly:
    """Anomaly of an address, with its first findings."""

    name: str
    count: int
    means: str
    do: str
    anchor: str
    findings: Sequence[_Found]
    alarming: bool

    @property
    def more(self) -> bool:
        return self.count > len(self.findings)


@dataclass(frozen=True, slots=True)
class _Address:
    """Address as the template needs it."""

    it: AddressFigures
    anchor: str
    anomalies: Sequence[_Anomaly]
    day: Sequence[str] = ()
    peak: str = ""
    resends: str = ""
    distances: str = ""
    ages: str = ""
    groups: str = ""
    groups_say: str = ""
    lanes: Sequence[Lane] = ()
    lanes_say: str = ""
    looks: Sequence[_Anomaly] = ()

    @property
    def found(self) -> int:
        """Number of anomalies."""
        return sum(anomaly.count for anomaly in self.anomalies)

    @property
    def alarming(self) -> bool:
        return any(anomaly.alarming for anomaly in self.anomalies)

    @property
    def rings(self) -> bool:
        """Whether rings have IDs."""
        return self.it.ring.capacity > 0 and any(lane.ring_used for lane in self.it.lanes)

    @property
    def apart(self) -> bool:
        """Whether lanes have resends."""
        return any(lane.resends for lane in self.it.lanes)

    @property
    def largest(self) -> int:
        """Number of records in the largest group."""
        return max(*(group.records for group in self.it.groups_largest), 1)


def render(figures: Figures) -> str:
    """Render the page. Equal figures give equal text."""
    environment = Environment(
        loader=PackageLoader("reconcile.page", "."), autoescape=True, undefined=StrictUndefined, finalize=_finalized,
        trim_blocks=False,
    )  # fmt: skip
    environment.filters.update(number="{:,}".format, shortened=formatting.shortened)
    of_run = figures.verdict != ""
    addresses = [
        _address(it, f"a{at}", figures.bootstrap_servers, of_run=of_run)
        for at, it in enumerate(figures.addresses, 1)
    ]
    totals = Counter[str]()
    for address in figures.addresses:
        totals.update(address.counts)
    return environment.get_template("page.html").render(
        figures=figures, verdict=trends.verdict_of(figures.verdict), of_run=of_run, addresses=addresses,
        totals=totals, trends=trends.drawn(figures.runs), findings_max=FINDINGS_MAX, open_max=OPEN_MAX,
    )  # fmt: skip


def _finalized(value: Any) -> Any:
    """Make invisible characters of a template value visible before it is escaped; HTML is left as it is."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return formatting.visible(value)


def _address(it: AddressFigures, anchor: str, servers: str, *, of_run: bool) -> _Address:
    anomalies = list(_anomalies(it, anchor, servers))
    drawn = dict[str, Any](distances="", ages="")
    if it.moments:
        drawn["day"] = [Markup(plots.day(it.moments, it.step_ms, wide=wide)) for wide in (True, False)]  # noqa: S704
        drawn["peak"] = prose.peak(it.moments, it.step_ms, it.strays)
    if any(distance.count for distance in it.distances):
        drawn["distances"] = Markup(plots.distances(it.distances, it.ring))  # noqa: S704
    if any(age.count for age in it.ages):
        drawn["ages"] = Markup(plots.ages(it.ages))  # noqa: S704
    if any(size.groups for size in it.group_sizes):
        drawn["groups"] = Markup(plots.groups(it.group_sizes))  # noqa: S704
        drawn["groups_say"] = prose.groups(it)
    return _Address(
        it, anchor, anomalies, **drawn, resends=prose.resends(it, of_run=of_run), lanes=prose.shown(it.lanes),
        lanes_say=prose.lanes(it, of_run=of_run), looks=[anomaly for anomaly in anomalies if anomaly.findings],
    )  # fmt: skip


def _anomalies(it: AddressFigures, anchor: str, servers: str) -> Iterator[_Anomaly]:
    """Yield anomalies in the order of the figures, then those that only findings name."""
    named: dict[str, list[Finding]] = {name: [] for name in it.anomalies}
    for finding in it.findings:
        named.setdefault(finding.anomaly, []).append(finding)
    for at, (name, findings) in enumerate(named.items(), 1):
        count = max(it.anomalies.get(name, 0), len(findings))
        if count:
            means, do = formatting.MEANINGS.get(name, formatting.Meaning("", ""))
            looks = [_Found(finding, list(_places(finding, servers))) for finding in findings]
            alarming = name != _ALLOWED or it.ring.overrun
            yield _Anomaly(name, count, means, do, f"{anchor}-{at}", looks, alarming)


def main(arguments: Sequence[str]) -> int:
    """Draw the page of a ``figures.json`` to standard output; return the exit code."""
    try:
        [name] = arguments
    except ValueError:
        sys.stderr.write("usage: python -m reconcile.page FIGURES.json > report.html\n")
        return 2
    try:
        page = render(_read(Path(name)))
    except RingfenceError as error:
        sys.stderr.write(f"reconcile.page: {error}\n")
        return error.exit_code
    sys.stdout.buffer.write(page.encode())
    return 0


def _read(path: Path) -> Figures:
    try:
        return Figures.from_json(path.read_text("utf-8"))
    except OSError as error:
        raise FiguresUnreadableError(f"{path}: {error.strerror}: name a figures.json") from error
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise FiguresUnreadableError(
            f"{path}: not figures of this version ({error}): name the figures.json that reconcile or audit wrote"
        ) from error
