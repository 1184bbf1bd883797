"""``ringfence status`` for a person, on 80 columns."""

from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from app.commands.status import model
from app.commands.status.formatting import age, lanes_open, memory, number, partitions, rate, share
from app.commands.status.model import Address, Consumers, Finding, Lane, Status, Worker
from ringfence_kafka.escaping import printable, shortened
from ringfence_kafka.wording import counted

LANES_MAX: Final = 8
"""Open lanes; the others are all shown."""


def document(status: Status, found: Sequence[Finding]) -> RenderableType:
    """Return the findings and all tables."""
    parts: list[RenderableType] = [_verdict(status, found), *map(_finding, found)]
    if status.addresses:
        parts += ["", _addresses(status.addresses), "", _lanes(status)]
    if any(worker.buffered_bytes is not None for worker in status.workers):
        parts += ["", _workers(status.workers)]
    if status.consumers:
        parts += ["", _consumers(status.consumers)]
    if status.bridges:
        parts += ["", _bridges(status)]
    return Group(*parts)


def show(status: Status, found: Sequence[Finding]) -> None:
    """Print the document."""
    Console().print(document(status, found), crop=False)


def _verdict(status: Status, found: Iterable[Finding]) -> Text:
    standing = sum(finding.stands for finding in found)
    where = f"{status.app} at {status.bootstrap_servers}, {status.at}"
    if standing:
        return Text.assemble((f"{counted(standing, 'thing')} to act on", "bold red"), f"  {where}")
    return Text.assemble(("ok", "bold green"), f"  {where}")


def _finding(finding: Finding) -> RenderableType:
    mark = ("STANDS", "bold red") if finding.stands else ("note", "yellow")
    lines = [
        Text.assemble(
            mark, f"  {printable(finding.where)}: {printable(shortened(finding.what, '--json has all'))}"
        )
    ]
    if finding.do or finding.command:
        words = f"{finding.do}{': ' if finding.do and finding.command else ''}"
        # Not wrapped: it is to be copied.
        line = Text(f"   -> {printable(words)}", no_wrap=True, overflow="ignore")
        lines.append(line.append(printable(finding.command), "bold"))
    return Group(*lines)


def _add(table: Table, *cells: str) -> None:
    """Add a row without markup or control characters, as other programs choose its words."""
    table.add_row(*(Text(printable(cell)) for cell in cells))


def _table(title: str, columns: str) -> Table:
    """``columns``: their names; ``<`` in front of a name aligns it to the left."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns.split("|"):
        name = column.removeprefix("<")
        table.add_column(name, justify="right" if name == column else "left", overflow="fold")
    return table


def _addresses(addresses: Iterable[Address]) -> Table:
    table = _table("ADDRESSES", "<address|lanes open|in|duplicates|lag|ring|reaches back")
    for address in addresses:
        full = address.fullest
        filled = share((full.ring_size or 0) / (full.ring_capacity or 1)) if full is not None else ""
        _add(
            table,
            address.address, lanes_open([lane.state for lane in address.lanes]), rate(address.rate), share(address.duplicates_share), number(address.lag),
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
            item.lane, *own, item.state, number(item.lag), age(item.head_age_seconds), _worker(status, item),
        )  # fmt: skip
    if len(shown) == len(lanes):
        return table
    return Group(
        table, Padding(f"and {len(lanes) - len(shown)} more that are open: --json has all", (0, 0, 0, 2))
    )


def _worker(status: Status, lane: Lane) -> str:
    if lane.worker is None:
        return "nobody"
    web = next((worker.web for worker in status.workers if worker.name == lane.worker), None)
    return lane.worker if web is None else f"{lane.worker} {web}"


def _workers(workers: Iterable[Worker]) -> Table:
    table = _table("WORKERS", "<worker|lanes|under way")
    for worker in workers:
        _add(table, worker.name, str(worker.lanes), memory(worker.buffered_bytes, worker.buffer_limit_bytes))
    return table


def _consumers(consumers: Iterable[Consumers]) -> Table:
    table = _table(
        "CONSUMERS", "<group at address|members|lag|oldest|attempts|<its group|<most wait in|under way"
    )
    for consumer in consumers:
        oldest, hot = consumer.oldest, consumer.hottest
        _add(
            table,
            f"{consumer.consumer_group} at {consumer.address}",
            str(len(consumer.members)),
            number(consumer.lag),
            age(oldest.head_age_seconds) if oldest else "",
            str(oldest.head_attempts) if oldest else "",
            (oldest.head_group or "(none)") if oldest else "",
            f"{hot.hot_group}: {number(hot.hot_depth)}" if hot else "",
            memory(consumer.buffered_bytes, consumer.buffer_limit_bytes),
        )
    return table


def _bridges(status: Status) -> Table:
    table = _table("BRIDGES", "<bridge|<from|<to|members|lag|forwarded")
    for bridge in status.bridges:
        _add(
            table,
            bridge.bridge, bridge.source_topic, bridge.target_topic, str(len(bridge.members)), number(bridge.lag),
            number(bridge.forwarded),
        )  # fmt: skip
    return table
