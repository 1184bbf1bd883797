"""Errors of usage that name the way out: options before the verb, and unknown verbs."""

import pytest
from click.testing import CliRunner

from app.cli import cli


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--config F status", "--config goes behind the verb: cli status --config F"),
        ("-X a=b topics create", "-X goes behind the verb: cli topics create -X a=b"),
        ("topics --config F create", "--config goes behind the verb: cli topics create --config F"),
        ("--config F", "--config goes behind the verb: cli VERB --config F"),
        ("--nothing status", "No such option: --nothing"),
        ("staus", "No such command 'staus'. Did you mean 'cli status'?"),
        ("rings sow", "No such command 'sow'. Did you mean 'cli rings show'?"),
        ("purge orders", "No such command 'purge'. Did you mean 'cli groups purge'?"),
        ("xyz", "No such command 'xyz'.\n"),
    ],
)
def test_wrong_usage(arguments: str, said: str) -> None:
    """The exit code is 2, and the error has the command that was meant, if there is one."""
    done = CliRunner().invoke(cli, arguments.split())

    assert done.exit_code == 2
    assert said in done.output
