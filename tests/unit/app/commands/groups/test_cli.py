"""Usage of ``ringfence groups show``: what is missing is named, with the command that shows it."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from app.cli import cli


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--messages", "3"], "write ringfence groups show orders GROUP --messages 3"),
        (["a"], "add --consumer-group NAME; ringfence groups show orders lists them"),
    ],
)
def test_incomplete(arguments: list[str], said: str, tmp_path: Path) -> None:
    config = tmp_path / "ringfence.toml"
    config.write_text('[[addresses]]\nname = "orders"\n')
    done = CliRunner().invoke(cli, ["groups", "show", "orders", *arguments, "--config", str(config)])

    assert done.exit_code == 2
    assert said in done.output
