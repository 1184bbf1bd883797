"""Prints ``ringfence status`` for a terminal of 80 columns."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from app.commands.status import model
from app.commands.status.formatting import lanes_open, memory, number, partitions, rate, run_text, share
from app.commands.status.model import Address, Consumers, Finding, Status, Worker
from ringfence_client.progress.open_records import OpenRecords
from ringfence_kafka.escaping import printable, shortened
from ringfence_kafka.page.charts import blocks
from ringfence_kafka.page.formats import age, mebibytes
from ringfence_kafka.page.history import Charts
from ringfence_kafka.wording import counted

WIDE: Final = 100
"""Terminal width from which the groups of each consumer group are shown."""
LANES_MAX: Final = 8
"""Number of open lanes to show; all others are shown."""
CHART_WIDTH: Final = 12
"""Width of a small chart in characters, each of which is five minutes."""


def document(status: Status, found: Sequence[Finding], past: Charts | None = None) -> RenderableType:
    """Return the findings and all tables. ``past``: figures of the last hour, for small charts."""
    parts: list[RenderableType] = [_verdict(status, found), *map(_finding, found)]
    if status.addresses:
        parts += ["", _addresses(status.addresses), "", _lanes(status)]
    if status.workers:
        parts += ["", _workers(status.workers)]
    if status.consumers:
        parts += ["", _ConsumerTable(status.consumers)]
    if status.bridges:
        parts += ["", _bridges(status)]
    if status.addresses:
        parts += ["", Text(printable(run_text(status.last_run, status.at)))]
    if past is not None and past.rows:
        parts += _charts(status, past)
    return Group(*parts)


def show(status: Status, found: Sequence[Finding], past: Charts | None = None) -> None:
    """Print the document."""
    Console().print(document(status, found, past), crop=False)


def _verdict(status: Status, found: Iterable[Finding]) -> Text:
    standing = sum(finding.stands for finding in found)
    where = f"{status.app} at {status.bootstrap_servers}, {status.at}"
    if standing:
        return Text.assemble((f"{counted(standing, 'thing')} to act on", "bold red"), f"  {where}")
    return Text.assemble(("ok", "bold green"), f"  {where}")


def _finding(finding: Finding) -> RenderableType:
    mark = Text("ACT", "bold red") if finding.stands else Text("note", "yellow")
    words = Table.grid(padding=(0, 2, 0, 0))
    words.add_column(width=len("    ->"))
    words.add_column()
    words.add_row(
        mark, Text(f"{printable(finding.where)}: {printable(shortened(finding.what, '--json has all'))}")
    )
    if finding.do:
        words.add_row("" if finding.command else Text("    ->"), Text(printable(finding.do)))
    if not finding.command:
        return words
    # no wrapping, so that it can be copied
    command = Text("    ->  ", no_wrap=True, overflow="ignore").append(printable(finding.command), "bold")
    return Group(words, command)


def _add(table: Table, *cells: str) -> None:
    """Add a row of one line, without markup and control characters: other programs write some texts."""
    table.add_row(*(Text(printable(cell), no_wrap=True, overflow="ellipsis") for cell in cells))


def _table(title: str, columns: str) -> Table:
    """Return a table. ``columns``: names, with ``<`` before texts, the only ones shortened to fit."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns.split("|"):
        name = column.removeprefix("<")
        numbers = name == column
        table.add_column(name, justify="right" if numbers else "left", no_wrap=numbers, vertical="bottom")
    return table


def _addresses(addresses: Iterable[Address]) -> Table:
    table = _table("ADDRESSES", "<address|lanes\nopen|in|duplicates|no ID|lag|ring|reaches\nback")
    for address in addresses:
        full = address.fullest
        filled = share((full.ring_size or 0) / (full.ring_capacity or 1)) if full is not None else ""
        _add(
            table,
            address.address, lanes_open([lane.state for lane in address.lanes]), rate(address.rate), share(address.duplicates_share), share(address.unchecked_share),
            number(address.lag),
            filled, age(address.seconds_covered),
        )  # fmt: skip
    return table


def _lanes(status: Status) -> RenderableType:
    lanes = [lane for address in status.addresses for lane in address.lanes]
    sick = [lane for lane in lanes if lane.state != model.OPEN]
    shown = [*sick, *[lane for lane in lanes if lane.state == model.OPEN][: max(0, LANES_MAX - len(sick))]]
    several = any(len(lane.partitions) > 1 for lane in lanes)
    table = _table("LANES", f"<lane|{'<partitions|' if several else ''}<state|lag|oldest|<worker")
    for item in shown:
        own = [partitions(item.partitions)] if several else []
        _add(
            table,
            item.lane, *own, item.state, number(item.lag), age(item.head_age_seconds), item.worker or "nobody",
        )  # fmt: skip
    if len(shown) == len(lanes):
        return table
    return Group(
        table, Padding(f"and {len(lanes) - len(shown)} more that are open: --json has all", (0, 0, 0, 2))
    )


def _workers(workers: Iterable[Worker]) -> Table:
    table = _table("WORKERS", "<worker|lanes|under way|<page")
    for worker in workers:
        under_way = memory(worker.buffered_bytes, worker.buffer_limit_bytes)
        _add(table, worker.name, str(worker.lanes), under_way, worker.web or "")
    return table


class _ConsumerTable:
    """Table of consumer groups. A narrow terminal gets fewer columns, so that names are complete."""

    def __init__(self, consumers: Sequence[Consumers]) -> None:
        self._consumers = consumers

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield _consumer_table(self._consumers, wide=options.max_width >= WIDE)


def _consumer_table(consumers: Iterable[Consumers], *, wide: bool) -> Table:
    groups = "<its\ngroup|<most\nwait in|" if wide else ""
    table = _table("CONSUMERS", f"<group at address|members|waiting|oldest|{groups}dead\nletters|under\nway")
    for consumer in consumers:
        oldest, hot = consumer.oldest, consumer.hottest
        first = (oldest.head_group or "(none)") if oldest else ""
        most = f"{hot.hot_group}: {number(hot.hot_depth)}" if hot else ""
        _add(
            table,
            f"{consumer.consumer_group} at {consumer.address}",
            str(len(consumer.members)),
            number(consumer.waiting),
            age(oldest.head_age_seconds) if oldest else "",
            *([first, most] if wide else []),
            _count(consumer.dead_letters),
            mebibytes(consumer.buffered_bytes),
        )
    return table


def _count(records: OpenRecords | None) -> str:
    return "" if records is None else f"{'≥' if records.at_least else ''}{number(records.count)}"


def _charts(status: Status, past: Charts) -> Iterator[RenderableType]:
    """Yield charts of addresses and consumers over the last hour. Each figure has its own scale."""
    addresses = [("address", item.address) for item in status.addresses]
    groups = [("consumers", item.consumer_group, item.address) for item in status.consumers]
    for title, columns, subjects, names in (
        ("ADDRESSES, THE LAST HOUR", "<address|<in|<duplicates|<lag|<reaches back", addresses, ("in", "duplicates", "lag", "covered")),
        ("CONSUMERS, THE LAST HOUR", "<group at address|<handled|<failed|<running|<oldest", groups, ("handled", "failed", "running", "oldest")),
    ):  # fmt: skip
        if subjects:
            table = _table(title, columns)
            for subject in subjects:
                figures = past.figures(*subject)
                charts = (blocks(figures.get(figure, []), CHART_WIDTH) for figure in names)
                _add(table, " at ".join(subject[1:]), *charts)
            yield from ("", table)


def _bridges(status: Status) -> Table:
    table = _table("BRIDGES", "<bridge|<from|<to|members|lag|forwarded")
    for bridge in status.bridges:
        _add(
            table,
            bridge.bridge, bridge.source_topic, bridge.target_topic, str(len(bridge.members)), number(bridge.lag),
            number(bridge.forwarded),
        )  # fmt: skip
    return table
