"""How refused records and dead letters are shown: to people, and to programs."""

import base64
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from app.repair.refused import Refused

SHOWN_MAX: Final = 50
"""Rows for a person; ``--json`` has all."""
VALUE_SHOWN_MAX: Final = 2_000
REASON_SHOWN_MAX: Final = 80
REASONS_MAX: Final = 20
"""Kinds of what is left, at the end of a run."""


def readable(value: bytes | None) -> str | None:
    """Text where it is UTF-8, else ``base64:…``, from which it can be made again."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"base64:{base64.b64encode(value).decode()}"


def document(refused: Refused, group: bytes | None, *, settled: bool) -> dict[str, Any]:
    """A record, without its content."""
    found = {
        "place": f"{refused.place.partition}/{refused.place.offset}",
        "topic": refused.place.topic,
        "partition": refused.place.partition,
        "offset": refused.place.offset,
        "reason": refused.reason,
        "source": refused.source or None,
        "group": readable(group),
        "timestamp": refused.timestamp,
        "redriven": refused.redriven,
        "whole": refused.digest is None,
        "settled": settled,
    }
    if refused.consumer_group:
        found |= {
            "consumer_group": refused.consumer_group,
            "attempts": refused.attempts,
            "accepted": None if refused.accepted is None else str(refused.accepted),
        }
    return found


def content(refused: Refused) -> dict[str, Any]:
    """All that stands there."""
    return {
        "key": readable(refused.key),
        "value": readable(refused.value),
        "headers": [[name, readable(value)] for name, value in refused.headers],
    }


def print_rows(
    topic: str, rows: Sequence[tuple[Refused, bytes | None, bool]], total: int, settled: int
) -> None:
    """For a person: the oldest first."""
    dead = any(each.consumer_group for each, _, _ in rows)
    console = Console()
    table = Table(title=f"{topic}: {total:,} open, {settled:,} settled")
    columns = ["place", "age", *(["consumer group", "tried"] if dead else []), "group", "redriven", "reason"]
    for column in columns:
        table.add_column(column, overflow="fold" if column in {"reason", "group"} else "ellipsis")
    for each, group, done in rows[:SHOWN_MAX]:
        own = [each.consumer_group, str(each.attempts)] if dead else []
        name = "(none)" if group is None else readable(group) or ""
        reason = each.reason if len(each.reason) <= REASON_SHOWN_MAX else each.reason[:REASON_SHOWN_MAX] + "…"
        table.add_row(
            f"{each.place.partition}/{each.place.offset}", age(each), *own, name, str(each.redriven) if each.redriven else "",
            f"(settled) {reason}" if done else reason,
        )  # fmt: skip
    console.print(table)
    if len(rows) > SHOWN_MAX:
        console.print(f"and {len(rows) - SHOWN_MAX:,} more: --json has all")
    kinds = Counter(each.reason for each, _, done in rows if not done)
    for reason, count in kinds.most_common(REASONS_MAX) if len(rows) > SHOWN_MAX else ():
        console.print(f"  {count:,}  {reason}", highlight=False)


def print_one(refused: Refused, group: bytes | None, *, settled: bool) -> None:
    """All of one record, for a person."""
    found = document(refused, group, settled=settled)
    for name, value in found.items():
        if name not in {"topic", "partition", "offset"}:
            click.echo(f"{name:<15} {'-' if value is None else value}")
    click.echo(f"{'age':<15} {age(refused)}")
    click.echo(f"{'key':<15} {readable(refused.key)}")
    for header, carried in refused.headers:
        click.echo(f"{'header':<15} {header}: {readable(carried)}")
    text = readable(refused.value)
    size = len(refused.value or b"")
    if text is not None and len(text) > VALUE_SHOWN_MAX:
        text = f"{text[:VALUE_SHOWN_MAX]}… (--json has all)"
    click.echo(f"{'value':<15} {size:,} bytes\n{text}")


def age(refused: Refused) -> str:
    """As a person says it."""
    seconds = max(0.0, time.time() - refused.timestamp / 1000)
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def print_left(left: Sequence[tuple[Refused, str]], say: Callable[[str], None]) -> None:
    """What was not redriven, by why, with the first place of each."""
    first: dict[str, Refused] = {}
    counts: Counter[str] = Counter()
    for refused, reason in left:
        counts[reason] += 1
        first.setdefault(reason, refused)
    for reason, count in counts.most_common(REASONS_MAX):
        place = first[reason].place
        say(f"left  {count} ({place.partition}/{place.offset}{', …' if count > 1 else ''}): {reason}")
    if len(counts) > REASONS_MAX:
        say(f"left  {sum(counts.values()) - sum(each for _, each in counts.most_common(REASONS_MAX))} more")


def dump(value: object) -> None:
    """One JSON document."""
    click.echo(json.dumps(value, indent=2))
