"""Each ``ringfence`` command in a document is one of the command line, with options that it has."""

import re
import shlex
from collections.abc import Iterator

import click
import pytest

from app.cli import cli
from docs.generator import reference
from tests.support.checkout import ROOT, documents

CONSOLE = re.compile(r"^```(?:console|bash|sh)\n(.*?)^```", re.MULTILINE | re.DOTALL)
TYPED = re.compile(r"^[$#] (?:.*\| )?(?:sudo )?ringfence ([a-z].*)$", re.MULTILINE)
INLINE = re.compile(r"`ringfence ([a-z][^`]*)`")
VERBS = {name.removeprefix("ringfence "): command for name, command in reference.commands().items()}


def _commands(document: str) -> Iterator[str]:
    """Commands of code blocks and of the text, without the word ringfence."""
    text = (ROOT / document).read_text("utf-8")
    for block in CONSOLE.findall(text):
        yield from TYPED.findall(block.replace("\\\n", " "))
    yield from (
        " ".join(found.split()) for found in INLINE.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    )


def _problem(command: str) -> str | None:
    words = shlex.split(command, comments=True)
    name = next((" ".join(words[:count]) for count in (2, 1) if " ".join(words[:count]) in VERBS), None)
    if name is None:
        group = cli.commands.get(words[0]) if words else None
        return None if isinstance(group, click.Group) and len(words) == 1 else f"no such command: {command}"
    known = {option for param in VERBS[name].params for option in (*param.opts, *param.secondary_opts)}
    given = {word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)}
    return f"{command}: no {', '.join(sorted(given - known))}" if given - known else None


@pytest.mark.parametrize("document", documents())
def test_commands_exist(document: str) -> None:
    assert [problem for command in _commands(document) if (problem := _problem(command))] == []


def test_commands_are_found() -> None:
    """The runbook names most groups of commands, so the patterns above find them."""
    named = {command.split()[0] for command in _commands("docs/runbook.md")}

    assert {"status", "rings", "quarantine", "dlq", "groups", "reconcile", "topics", "consumers"} <= named
    assert _problem("groups skipp orders") is not None
    assert _problem("groups skip orders --to-dql") is not None
