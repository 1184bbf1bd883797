"""Verbs that name the next command, and groups of verbs that suggest the right one after a typing error."""

import difflib
import shlex
from collections.abc import Iterator
from string import Formatter
from typing import Any, Final

import click

from ringfence_kafka.process.command_line import print_next, suggest

_ARGUMENTS: Final = "ringfence.arguments"
"""Key of the arguments of a verb in its context."""
_DRY_RUN: Final = "--dry-run"


class Verb(click.Command):
    """A verb that names the next command at its end, on stderr: after a dry run the same command without ``--dry-run``."""

    def __init__(self, *args: Any, next_step: str = "", **options: Any) -> None:
        """``next_step``: the next command without ``ringfence``. ``{name}`` is the value of a parameter; it names nothing if the value is missing."""
        super().__init__(*args, **options)
        self._next_step = next_step

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, and keep them for the end of a dry run."""
        ctx.meta[_ARGUMENTS] = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb. After JSON, and after another exit code than 0, it names no next command."""
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
    """Return a word of a next command with the values of its parameters: "" for a flag that is off, None for a value that is missing."""
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
    """A group that knows similar names of verbs, and options that go behind the verb."""

    command_class = Verb

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
                f"{error.option_name} belongs after the verb: {ctx.command_path} {right}", ctx
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
