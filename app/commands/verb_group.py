"""Groups of verbs whose errors of usage name the way out."""

import difflib
import shlex
from collections.abc import Iterator

import click


class VerbGroup(click.Group):
    """A group that knows similar names of verbs, and options that go behind the verb."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options before the verb; one that a verb takes is named with its place."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name not in _options(self):
                raise
            at = next((index for index, word in enumerate(given) if word in self.commands), len(given))
            right = shlex.join([*(given[at:] or ["VERB"]), *given[:at]])
            raise click.UsageError(
                f"{error.option_name} goes behind the verb: {ctx.command_path} {right}", ctx
            ) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb; an unknown one is an error that names similar ones."""
        name = args[0]
        if self.get_command(ctx, name) is None and not ctx.resilient_parsing:
            near = [*_named(self, name), *difflib.get_close_matches(name, self.list_commands(ctx))]
            if near:
                meant = " or ".join(f"'{ctx.command_path} {verb}'" for verb in near)
                raise click.UsageError(f"No such command {name!r}. Did you mean {meant}?", ctx)
        return super().resolve_command(ctx, args)


def _options(group: click.Group) -> set[str]:
    """Return all options of the verbs in a group."""
    found: set[str] = set()
    for command in group.commands.values():
        found.update(option for param in command.params for option in param.opts)
        if isinstance(command, click.Group):
            found |= _options(command)
    return found


def _named(group: click.Group, name: str) -> Iterator[str]:
    """Yield verbs of this name in the groups below, such as ``topics create``."""
    for noun, command in group.commands.items():
        if isinstance(command, click.Group) and name in command.commands:
            yield f"{noun} {name}"
