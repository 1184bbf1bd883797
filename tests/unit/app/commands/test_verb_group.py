"""Errors of usage that name the way out: options before the verb, and unknown verbs; and the next command at the end of a verb."""

import shlex

import click
from click.testing import CliRunner

from app.cli import cli
from app.commands.repair.records import parse_place
from app.commands.verb_group import VerbGroup


def test_wrong_usage() -> None:
    """The exit code is 2, and the error has the command that was meant, if there is one."""
    for arguments, said in (
        ("--config F status", "--config belongs after the verb: cli status --config F"),
        ("topics --config F create", "--config belongs after the verb: cli topics create --config F"),
        ("--nothing status", "No such option: --nothing"),
        ("xyz", "No such command 'xyz'.\n"),
        ("staus", "No such command 'staus'. Did you mean 'cli status'?"),
        ("rings sow", "No such command 'sow'. Did you mean 'cli rings show'?"),
        ("purge orders", "No such command 'purge'. Did you mean 'cli groups purge'?"),
    ):
        done = CliRunner().invoke(cli, arguments.split())

        assert done.exit_code == 2
        assert said in done.output


@click.group(cls=VerbGroup)
def _desk() -> None:
    pass


@_desk.command("drop", next_step="desk list {name} --at={place} {bridge}")
@click.argument("name")
@click.argument("place", type=parse_place, required=False)
@click.option("--bridge", is_flag=True)
@click.option("--dry-run", is_flag=True)
@click.option("--json", "as_json", is_flag=True)
@click.option("--code", type=int, default=0)
def _drop(code: int, **_: object) -> int:
    return code


def test_next_step() -> None:
    """A verb that succeeds names the next command; after JSON, a failure or without the value that it needs it names none."""
    for arguments, said in (
        ("drop a 1/20", "next: ringfence desk list a --at=1/20\n"),
        ("drop 'a b' 1/20 --bridge", "next: ringfence desk list 'a b' --at=1/20 --bridge\n"),
        ("drop a 1/20 --dry-run --bridge", "next: desk drop a 1/20 --bridge\n"),
        ("drop a", ""),
        ("drop a 1/20 --json", ""),
        ("drop a 1/20 --code 1", ""),
    ):
        assert CliRunner().invoke(_desk, shlex.split(arguments), prog_name="desk").stderr == said
