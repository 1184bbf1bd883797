"""Shows what was found to a person."""

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table

from app.check.judge import Judgement

FAULTS_SHOWN: Final = 10
WIDTH_MIN: Final = 110


def table(judgements: Sequence[Judgement], seconds: float) -> Table:
    """A row an address and a total; what must be 0 and is not, in red."""
    made = Table(
        title="What went in against what came out, read from Kafka by a program that is not Ringfence"
    )
    made.add_column("address")
    for column in (
        "sent", "distinct", "accepted", "lost", "torn", "doubled", "out of order", "changed", "messages/s",
    ):  # fmt: skip
        made.add_column(column, justify="right")
    rows = [(judgement.address, _numbers(judgement)) for judgement in judgements]
    total = [sum(column) for column in zip(*(numbers for _, numbers in rows), strict=True)]
    rows.append(("total", total))
    for name, numbers in rows:
        if numbers is total:
            made.add_section()
        cells = [f"{number:,}" for number in numbers[:3]]
        cells += [f"[bold red]{number:,}[/]" if number else "0" for number in numbers[3:]]
        made.add_row(name, *cells, f"{numbers[0] / seconds:,.0f}" if seconds else "")
    return made


def _numbers(found: Judgement) -> list[int]:
    faults = (found.lost, found.torn, found.doubled, found.out_of_order, found.changed)
    return [found.sent, found.distinct, found.accepted, *map(len, faults)]


def standard_output() -> Console:
    """Standard output; what is no terminal is nobody's window, and does not limit the table."""
    found = Console()
    return found if found.is_terminal else Console(width=max(found.width, WIDTH_MIN))


def report(console: Console, judgements: Sequence[Judgement], seconds: float) -> None:
    """The table, and the first faults of each kind."""
    console.print(table(judgements, seconds))
    crossing = sum(judgement.straddling for judgement in judgements)
    for judgement in judgements:
        if judgement.parts:
            console.print(
                f"{judgement.accepted:,} transactions of {judgement.address} were accepted as {judgement.parts:,} parts."
            )
        if judgement.resent:
            console.print(
                f"{judgement.resent:,} records of {judgement.address} were sent again by their bridges."
            )
    if crossing:
        console.print(
            f"{crossing:,} resends came after the kill while their originals were consumed before it."
        )
    for title in ("lost", "torn", "doubled", "out_of_order", "changed"):
        faults = [fault for judgement in judgements for fault in getattr(judgement, title)]
        for fault in faults[:FAULTS_SHOWN]:
            console.print(
                f"{title.replace('_', ' ')}: {fault}", markup=False, highlight=False, soft_wrap=True
            )
        if len(faults) > FAULTS_SHOWN:
            console.print(f"{title.replace('_', ' ')}: and {len(faults) - FAULTS_SHOWN:,} more")
