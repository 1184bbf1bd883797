"""Prints judgements."""

from collections.abc import Mapping, Sequence
from typing import Final

from rich.console import Console
from rich.table import Table

from app.check.judge import Judgement

FAULTS_SHOWN: Final = 10
WIDTH_MIN: Final = 110
_KINDS: Final = ("lost", "torn", "doubled", "out of order", "changed")


def table(judgements: Sequence[Judgement], seconds: float) -> Table:
    """Return a table with a row for each address and a total. Problem counts above 0 are red."""
    made = Table(title="Input and output, read from Kafka by a program that is not Ringfence")
    made.add_column("address")
    for column in ("sent", "distinct", "accepted", *_KINDS, "messages/s"):
        made.add_column(column, justify="right")
    rows = [(judgement.address, _numbers(judgement)) for judgement in judgements]
    total = [sum(column) for column in zip(*(numbers for _, numbers in rows), strict=True)]
    rows.append(("total", total))
    for name, numbers in rows:
        if numbers is total:
            made.add_section()
        cells = (*(f"{number:,}" for number in numbers[:3]), *map(fault_cell, numbers[3:]))
        made.add_row(name, *cells, f"{numbers[0] / seconds:,.0f}" if seconds else "")
    return made


def _numbers(found: Judgement) -> list[int]:
    return [found.sent, found.distinct, found.accepted, *map(len, found.by_kind(*_KINDS).values())]


def fault_cell(count: int) -> str:
    """Return a count of problems, red if it is not 0."""
    return f"[bold red]{count:,}[/]" if count else "0"


def standard_output() -> Console:
    """Return standard output. Without a terminal, the table gets its full width."""
    found = Console()
    return found if found.is_terminal else Console(width=max(found.width, WIDTH_MIN))


def report(console: Console, judgements: Sequence[Judgement], seconds: float) -> None:
    """Print the table, and the first problems of each kind."""
    console.print(table(judgements, seconds))
    for judgement in judgements:
        if judgement.parts:
            console.print(
                f"{judgement.accepted:,} transactions of {judgement.address} were accepted as {judgement.parts:,} parts."
            )
        if judgement.resent:
            console.print(
                f"{judgement.resent:,} records of {judgement.address} were sent again by their bridges."
            )
    if crossing := sum(judgement.straddling for judgement in judgements):
        console.print(
            f"{crossing:,} resends came after the kill while their originals were consumed before it."
        )
    found = [judgement.by_kind(*_KINDS) for judgement in judgements]
    print_faults(console, {kind: [fault for faults in found for fault in faults[kind]] for kind in _KINDS})


def print_faults(console: Console, by_kind: Mapping[str, Sequence[str]]) -> None:
    """Print the first problems of each kind, and the number of the others."""
    for kind, faults in by_kind.items():
        for fault in faults[:FAULTS_SHOWN]:
            console.print(f"{kind}: {fault}", markup=False, highlight=False, soft_wrap=True)
        if len(faults) > FAULTS_SHOWN:
            console.print(f"{kind}: and {len(faults) - FAULTS_SHOWN:,} more")
