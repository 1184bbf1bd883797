"""What a redrive or a drop has done, and what it has left."""

from dataclasses import dataclass, field, replace
from typing import Final

import click

from app.commands.repair import output
from app.commands.repair.refused_record import Refused
from app.commands.repair.scan import Wanted

NOTHING: Final = 1
"""Exit code: nothing was found."""


def none_open(what: str, wanted: Wanted) -> str:
    """That none is, of those that are meant; and what is open beside them, or how one sees that a record is settled."""
    if wanted.selection.everything:
        return f"there are no open {what}"
    if wanted.selection.at:
        places = ", ".join(f"{number}/{offset}" for number, offset in sorted(wanted.selection.at))
        return f"{places}: no open {what} that are meant; `list --all` shows what is settled"
    beside = f"; {wanted.passed}" if wanted.passed.count else ""
    open_ones = what if wanted.settled_too else f"open {what}"
    return f"there are no {open_ones} that are meant{beside}"


@dataclass(slots=True)
class Result:
    """Of one run."""

    done: int = 0
    left: list[tuple[Refused, str]] = field(default_factory=list)
    """With why."""

    def leave(self, refused: Refused, reason: str) -> None:
        """It is not done. Its value is not kept: there may be many, and large."""
        self.left.append((replace(refused, value=None), reason))

    def tell(self, wanted: Wanted, what: str, said: str) -> int:
        """Print how it ends.

        Args:
            wanted: What was meant, and what else was open.
            what: Is meant, in one word or two.
            said: What became of those that are done.

        Returns:
            The exit code: 0 all that was meant is done; 1 there is none, or some was left.
        """
        if not self.done and not self.left:
            click.echo(f"nothing to do  {none_open(what, wanted)}")
            return NOTHING
        output.print_left(self.left, output.say)
        click.echo(f"{self.done} {said}, {len(self.left)} left")
        return 1 if self.left else 0
