"""What a redrive or a drop has done, and what it has left."""

from dataclasses import dataclass, field, replace
from typing import Final

import click

from app.repair import showing
from app.repair.refused import Refused
from app.repair.selection import Selection

NOTHING: Final = 1
"""Exit code: nothing was found."""


@dataclass(slots=True)
class Result:
    """Of one run."""

    done: int = 0
    left: list[tuple[Refused, str]] = field(default_factory=list)
    """With why."""

    def leave(self, refused: Refused, reason: str) -> None:
        """It is not done. Its value is not kept: there may be many, and large."""
        self.left.append((replace(refused, value=None), reason))

    def tell(self, selection: Selection, what: str, said: str) -> int:
        """Print how it ends.

        Args:
            selection: Of what was meant.
            what: Is meant, in one word or two.
            said: What became of those that are done.

        Returns:
            The exit code: 0 all that was meant is done; 1 there is none, or some was left.
        """
        if not self.done and not self.left:
            meant = "" if selection.everything else " that are meant"
            click.echo(f"nothing to do  there are no open {what}{meant}")
            return NOTHING
        showing.print_left(self.left, showing.say)
        click.echo(f"{self.done} {said}, {len(self.left)} left")
        return 1 if self.left else 0
