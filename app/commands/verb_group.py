"""Commands that name the next command, and groups that correct typing errors."""

import difflib
import shlex
from collections.abc import Iterator
from string import Formatter
from typing import Any, Final

import click

from ringfence_kafka.process.command_line import print_next, suggest

_ARGUMENTS: Final = "ringfence.arguments"
"""Key of a command's arguments in its context."""
_DRY_RUN: Final = "--dry-run"


class Verb(click.Command):
    """Command that suggests the next one on stderr; after a dry run, itself without ``--dry-run``."""

    def __init__(self, *args: Any, next_step: str = "", **options: Any) -> None:
        """Take the next command without ``ringfence``; none if the parameter of a ``{name}`` is missing."""
        super().__init__(*args, **options)
        self._next_step = next_step

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, and keep them for the end of a dry run."""
        ctx.meta[_ARGUMENTS] = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. With JSON output or an exit code other than 0, it does not suggest a next one."""
        code = super().invoke(ctx)
        if code or ctx.params.get("as_json"):
            return code
        given = ctx.meta[_ARGUMENTS]
        if _DRY_RUN in given:
            print_next(*ctx.command_path.split(), *(word for word in given if word != _DRY_RUN))
        elif self._next_step:
            words = [_filled(word, ctx.params) for word in self._next_step.split()]
            if None not in words:
                suggest(*filter(None, words))
        return code


def _filled(word: str, parameters: dict[str, Any]) -> str | None:
    """Fill in a word of a next command: "" for a flag that is off, None for a missing value."""
    values: dict[str, str] = {}
    for _, name, _, _ in Formatter().parse(word):
        match parameters[name] if name else "":
            case None:
                return None
            case bool(flag):
                values[str(name)] = f"--{name}" if flag else ""
            case (partition, offset):
                values[str(name)] = f"{partition}/{offset}"
            case value:
                values[str(name)] = str(value)
    return word.format_map(values)


class VerbGroup(click.Group):
    """Group that suggests similar command names, and the right place of options."""

    command_class = Verb

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options before the command. An error explains if an option belongs after the command."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name not in _options(self):
                raise
            at = next((index for index, word in enumerate(given) if word in self.commands), len(given))
            right = shlex.join([*(given[at:] or ["VERB"]), *given[:at]])
            raise click.UsageError(
                f"{error.option_name} belongs after the verb: {ctx.command_path} {right}", ctx
            ) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command. For an unknown one, the error names similar ones."""
        name = args[0]
        if self.get_command(ctx, name) is None and not ctx.resilient_parsing:
            near = [*_named(self, name), *difflib.get_close_matches(name, self.list_commands(ctx))]
            if near:
                meant = " or ".join(f"'{ctx.command_path} {verb}'" for verb in near)
                raise click.UsageError(f"No such command {name!r}. Did you mean {meant}?", ctx)
        return super().resolve_command(ctx, args)


def _options(group: click.Group) -> set[str]:
    """Return all options of the commands in a group."""
    found: set[str] = set()
    for command in group.commands.values():
        found.update(option for param in command.params for option in param.opts)
        if isinstance(command, click.Group):
            found |= _options(command)
    return found


def _named(group: click.Group, name: str) -> Iterator[str]:
    """Yield commands with this name in subgroups, such as ``topics create``."""
    for noun, command in group.commands.items():
        if isinstance(command, click.Group) and name in command.commands:
            yield f"{noun} {name}"
