"""Generated reference files: ``python -m docs.generator.reference`` writes all of them.

They are docs/cli.md, the example of docs/sizing.md, docs/configuration.md, docs/log-messages.md and
conf/ringfence.schema.json.
"""

import inspect
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click
from click.testing import CliRunner

from app.cli import cli
from docs.generator import configuration, log_messages
from ringfence_client.__main__ import consume
from ringfence_kafka.config import schema
from ringfence_kafka.process.command_line import CONNECTION_OPTIONS

FILE: Final = Path(__file__).resolve().parents[1] / "cli.md"
SIZING: Final = FILE.with_name("sizing.md")
CONFIGURATION: Final = FILE.with_name("configuration.md")
LOG_MESSAGES: Final = FILE.with_name("log-messages.md")
SCHEMA: Final = FILE.parents[1] / "conf" / "ringfence.schema.json"
_EXAMPLE: Final = re.compile(
    r"(?<=```console\n\$ ringfence )(plan [^\n]*)\n.*?(?=^```)", re.DOTALL | re.MULTILINE
)
_EVERYWHERE: Final = frozenset({"--config", "--help", *CONNECTION_OPTIONS})
_HEAD: Final = """\
# The command line

Made from the verbs by `make cli-docs`. `ringfence VERB --help` shows the same.

Exit codes: 0 ok, 1 the check failed, 2 could not run (usage, configuration, broker unreachable), 3 unknown because
evidence was deleted; 130 interrupted by Ctrl-C, 143 by SIGTERM. Workers, consumers and bridges stop cleanly on both, with 0.

## Completion

`ringfence` completes verbs and options in bash (4.4 or newer), zsh and fish. Put one line where your shell reads it:

| shell | line | in |
|---|---|---|
| bash | `eval "$(_RINGFENCE_COMPLETE=bash_source ringfence)"` | `~/.bashrc` |
| zsh | `eval "$(_RINGFENCE_COMPLETE=zsh_source ringfence)"` | `~/.zshrc` |
| fish | `_RINGFENCE_COMPLETE=fish_source ringfence \\| source` | `~/.config/fish/completions/ringfence.fish` |

## Options of every verb

`broker`, `demo` and `plan` do not use your cluster, and accept only the first.

"""
_PLAIN: Final = str.maketrans({"|": "\\|", "<": "&lt;", ">": "&gt;"})


def page() -> str:
    """Return docs/cli.md."""
    found = commands()
    first = _context(next(iter(found.values())), "ringfence")
    common = [param for param in first.command.params if _EVERYWHERE.intersection(param.opts)]
    parts = [_HEAD + _table(first, common)]
    parts += [_section(name, command) for name, command in sorted(found.items())]
    return "\n".join(parts)


def commands() -> dict[str, click.Command]:
    """Return the commands by full name, as "ringfence groups skip"."""
    return dict(_verbs(cli, "ringfence"))


def sizing(text: str) -> str:
    """Return docs/sizing.md with the current output of its example."""

    def run(example: re.Match[str]) -> str:
        done = CliRunner().invoke(cli, example[1].split(), standalone_mode=False, catch_exceptions=False)
        return f"{example[1]}\n{done.output.strip()}\n"

    return _EXAMPLE.sub(run, text)


def _verbs(group: click.Group, prefix: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            if command.invoke_without_command:
                yield f"{prefix} {name}", command
            yield from _verbs(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}", consume if name == "consume" else command
            if name == "bridge":
                from app.commands.bridges.cli import status

                yield f"{prefix} bridge status", status


def _context(command: click.Command, name: str) -> click.Context:
    """Return the context of a command as the command line creates it. A command keeps its first context."""
    return click.Context(command, info_name=name, **cli.context_settings)


def _section(name: str, command: click.Command) -> str:
    context = _context(command, name)
    pieces = " ".join(command.collect_usage_pieces(context))
    shared = any("--config" in param.opts for param in command.params)
    own = [
        param
        for param in command.params
        if isinstance(param, click.Option) and not (shared and _EVERYWHERE.intersection(param.opts))
    ]
    text = inspect.cleandoc(command.help or "").translate(_PLAIN)
    return f"## {name}\n\n`{name} {pieces}`\n\n{text}\n" + (f"\n{_table(context, own)}" if own else "")


def _table(context: click.Context, options: Sequence[click.Parameter]) -> str:
    records = [record for option in options if (record := option.get_help_record(context)) is not None]
    rows = [
        f"| `{option.replace('|', chr(92) + '|')}` | {text.translate(_PLAIN)} |\n" for option, text in records
    ]
    return "| option | |\n|---|---|\n" + "".join(rows)


def files() -> dict[Path, str]:
    """Return the text of each file."""
    return {
        FILE: page(),
        SIZING: sizing(SIZING.read_text("utf-8")),
        CONFIGURATION: configuration.page(),
        LOG_MESSAGES: log_messages.page(),
        SCHEMA: f"{json.dumps(schema.document(), indent=2)}\n",
    }


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, "utf-8")
        sys.stdout.write(f"{path}\n")
