"""Verbs that cannot be undone ask where somebody is there to answer."""

import io
import sys
from pathlib import Path

import pytest

from app import asking, cli
from tests.support.keyboard import Keyboard


def test_no_is_no(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a yes nothing goes on; a script, or ``--yes``, is not asked."""
    monkeypatch.setattr(sys, "stdin", Keyboard("n\n"))
    with pytest.raises(asking.DeclinedError, match="nothing was done"):
        asking.confirmed("Really?")
    asking.confirmed("Really?", yes=True)
    monkeypatch.setattr(sys, "stdin", Keyboard("y\n"))
    asking.confirmed("Really?")
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    asking.confirmed("Really?")


def test_rings_clear_asks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before it looks at the cluster, which there need not even be."""
    config = tmp_path / "ringfence.toml"
    config.write_text('[kafka]\nbootstrap_servers = "127.0.0.1:1"\n[[addresses]]\nname = "orders"\n')
    monkeypatch.setattr(sys, "stdin", Keyboard("n\n"))
    with pytest.raises(SystemExit) as ended:
        cli.main(["rings", "clear", "orders", "--config", str(config)])

    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert "Forget all IDs of orders?" in said
    assert "nothing was done: the answer was no" in said
