"""Verbs that cannot be undone ask where somebody is there to answer."""

import contextlib
import io
import sys
from pathlib import Path
from unittest.mock import AsyncMock, MagicMock

import pytest

from app.commands.rings import offline_change
from app.commands.topics import grow
from app.commands.topics.growth_plan import Growth, Work
from tests.support.terminal import Keyboard, entered


def test_rings_clear_asks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The verb ``rings clear`` asks before it connects to the cluster."""
    config = tmp_path / "ringfence.toml"
    config.write_text('[kafka]\nbootstrap_servers = "127.0.0.1:1"\n[[addresses]]\nname = "orders"\n')
    monkeypatch.setattr(sys, "stdin", Keyboard("n\n"))

    assert entered("rings", "clear", "orders", "--config", str(config)) == 1
    said = capsys.readouterr().err
    assert "Forget all IDs of orders?" in said
    assert "nothing was done: the answer was no" in said


def test_topics_grow_asks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The verb ``topics grow`` asks, because partitions cannot be removed. A dry run changes nothing and does not ask."""
    config = tmp_path / "ringfence.toml"
    config.write_text('[[addresses]]\nname = "orders"\n')
    command = ("topics", "grow", "orders", "--partitions", "8", "--config", str(config))
    none = MagicMock()
    none.return_value.__aiter__.return_value = []
    monkeypatch.setattr(offline_change, "Cluster", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(grow._Growing, "_obstacles", none)
    work = AsyncMock(return_value=Work(Growth(4, 8), {"orders": 4}, {}, []))
    monkeypatch.setattr(grow._Growing, "_work", work)
    for options, typed, code, asked in (
        ([], Keyboard("n\n"), 1, True),
        ([], Keyboard("y\n"), 0, True),
        (["--yes"], Keyboard("n\n"), 0, False),
        (["--dry-run"], Keyboard("n\n"), 0, False),
        ([], io.StringIO(), 0, False),  # a script
    ):
        carry_out = AsyncMock()
        monkeypatch.setattr(grow._Growing, "_carry_out", carry_out)
        monkeypatch.setattr(sys, "stdin", typed)

        assert entered(*command, *options) == code
        assert ("Give orders 8 partitions, where it has 4" in capsys.readouterr().err) is asked
        assert carry_out.called is (code == 0 and "--dry-run" not in options)
