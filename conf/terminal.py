"""Output of tables: a person's terminal, a file or another program."""

from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ringfence_kafka.escaping import printable

_WIDTH_MAX: Final = 100_000
"""More than any table has: without a terminal nothing is cut or folded."""
_NAME_ROOM_MIN: Final = 40
"""Columns that a name gets in any window."""


class _Plain(Console):
    """Names, IDs and reasons are anybody's words: neither markup, nor smileys, nor commands of a terminal."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text, keep="\n"), **options)


def console() -> Console:
    """Return standard output; without a terminal as wide as what is printed. It prints texts as they are."""
    found = _Plain(markup=False, emoji=False)
    return found if found.is_terminal else _Plain(markup=False, emoji=False, width=_WIDTH_MAX)


def print_table(table: Table, to: Console | None = None) -> None:
    """Print a table. The first column, which names the subject of a row, is never cut. Others fold first, then the last ones are cut.

    Only a name that would leave the others no room folds, too.
    """
    to = to or console()
    if table.columns:
        first, *rest = table.columns
        longest = max(to.render_str(str(item)).cell_len for item in (first.header, *first.cells))
        if longest <= max(_NAME_ROOM_MIN, to.width // 2):
            first.no_wrap, first.min_width = True, longest
        for column in (first, *rest):
            column.overflow = "fold"
    to.print(table)
