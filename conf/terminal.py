"""Where tables are told: a person's terminal, or a file or another program."""

from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

_WIDTH_MAX: Final = 100_000
"""More than any table has: without a terminal nothing is cut or folded."""


def console() -> Console:
    """Standard output; without a terminal as wide as what is printed."""
    found = Console()
    return found if found.is_terminal else Console(width=_WIDTH_MAX)


def tell(table: Table, to: Console | None = None) -> None:
    """Print a table. What each row is about, its first column, is never cut: others fold first, then the last ones are."""
    to = to or console()
    if table.columns:
        first, *rest = table.columns
        first.no_wrap = True
        cells = (first.header, *first.cells)
        first.min_width = max(Text.from_markup(str(each)).cell_len for each in cells)
        for each in rest:
            each.overflow = "fold"
    to.print(table)
