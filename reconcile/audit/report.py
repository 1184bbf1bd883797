"""Terminal report of an audit: a table, sentences, and configuration."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from conf.terminal import print_table
from reconcile.audit.result import Audit, Resends, Spread
from reconcile.page.advice import HEADROOM


def show(audit: Audit, notes: Sequence[str], snippet: str, console: Console) -> None:
    """Print numbers, sentences and TOML."""
    table = Table(title=f"{audit.topic.name}: {audit.topic.part.asked}", show_header=False)
    table.add_column("what")
    table.add_column("number", justify="right")
    for name, value in _rows(audit):
        table.add_row(name, value)
    print_table(table, console)
    if audit.found.distance.count:
        print_table(_distances(audit.found), console)
    for note in notes:
        console.print(f"- {note}", markup=False, highlight=False)
    if audit.records:
        console.print()
        console.print(snippet, markup=False, highlight=False, end="", soft_wrap=True)


def _rows(audit: Audit) -> list[tuple[str, str]]:
    found, groups = audit.found, audit.groups
    rows = [
        ("records", f"{audit.records:,}"),
        ("with an ID", f"{found.with_id:,}"),
        ("without", f"{audit.records - found.with_id:,}"),
        *_transactions(audit),
        *_bridges(audit),
        ("resends", _of(found.resends, audit.records)),
        ("  to another partition", f"{found.other_partition:,}"),
        ("  of another group", f"{found.other_group:,}"),
        ("  with another value", f"{found.other_value:,}"),
        ("  to another lane: cannot be caught", f"{found.cross_lane:,}"),
        *([("  after id_max_age: cannot be caught", f"{found.expired:,}")] if found.expired else []),
        ("groups", f"{groups.count:,}"),
        ("  share of the largest / of ten", f"{groups.share(1):.1%} / {groups.share(10):.1%}"),
        ("busiest lane against the mean", f"{audit.lane_skew:.2f}"),
        ("would be forwarded", _of(found.forwarded, audit.records)),
        ("partitioner", audit.partitioner),
        ("id_cache_size", f"{audit.settings.id_cache_size:,}"),
        (
            f"  needed for {float(audit.confidence) * 100:g} % of the resends",
            f"{found.needed:,}" if found.needed else "?",
        ),
        (
            f"  recommended, with {HEADROOM} % headroom",
            "none: less than an hour" if audit.recommended is None else f"{audit.recommended:,}",
        ),
    ]
    day = audit.a_day(found.within_needed)
    return [*rows, ("duplicates dropped a day", "?" if day is None else f"{day:,.0f}")]


def _transactions(audit: Audit) -> list[tuple[str, str]]:
    found = audit.transactions
    if not audit.sum("envelopes"):
        return []
    return [
        ("transactions", f"{found.count:,}"),
        ("  parts", f"{found.parts:,}"),
        ("  parts with an ID", f"{found.part_ids:,}"),
        ("  without any ID", f"{found.without_id:,}"),
        *([("  cannot be read: would be refused", f"{found.malformed:,}")] if found.malformed else []),
    ]


def _bridges(audit: Audit) -> list[tuple[str, str]]:
    found = audit.bridges
    if not audit.sum("bridged"):
        return []
    return [
        ("over bridges", f"{found.records:,}"),
        ("  sent again by them", _of(found.resends, found.records)),
        ("  own ID not checked", f"{found.ids_ignored:,}"),
        *([("  cannot be read: would be refused", f"{found.malformed:,}")] if found.malformed else []),
    ]


def _of(part: int, of: int) -> str:
    return f"{part:,} ({part / of:.2%})" if of else f"{part:,}"


def _distances(found: Resends) -> Table:
    table = Table(title="How far resends are from what they repeat")
    for item in ("", "median", "99 %", "largest"):
        table.add_column(item, justify="right" if item else "left")
    spreads: list[tuple[str, Spread, str]] = [
        ("IDs of the lane", found.distance, ",.0f"),
        ("messages of the lane", found.messages, ",.0f"),
        ("seconds", found.seconds, ",.3f"),
    ]
    for name, spread, form in spreads:
        table.add_row(name, *(format(value, form) for value in (spread.p50, spread.p99, spread.max)))
    return table
