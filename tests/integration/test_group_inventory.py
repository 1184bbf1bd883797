"""What ``consumers forget`` names of a group before it deletes it, and afterwards."""

from pathlib import Path

import click
import pytest

from app.commands import confirmation
from app.commands.confirmation import DeclinedError
from app.commands.consumers.forget import forget
from tests.integration.test_dlq import Scene
from tests.support.consumers.processes import consumers
from tests.support.worker import run_verb, wait_for

UNFINISHED = "a lag of 6 offsets, 1 open dead letter, 1 parked group (bad)"


def test_forget_names_what_is_unfinished(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lag, open dead letters and parked groups stand in the question, and in the line of a script."""
    scene = Scene(bootstrap, tmp_path)
    process = scene.consumer("--on-dead-letter", "park")
    with consumers(process):
        wait_for(lambda: len(scene.letters()) == 1, process.log)
        wait_for(lambda: process.health()[1]["counts"]["finished"] == 3, process.log)
        assert process.stop() == 0
    asked: list[str] = []

    def refuse(question: str, **_: object) -> bool:
        asked.append(question)
        return False

    monkeypatch.setattr(confirmation, "can_ask", lambda: True)
    monkeypatch.setattr(click, "confirm", refuse)
    with pytest.raises(DeclinedError):
        forget(scene.settings, scene.group, yes=False)
    done = run_verb("consumers", "forget", scene.group, "--config", str(scene.config))

    assert f"It has {UNFINISHED}. The dead letters stay" in asked[0]
    assert done.stdout == (
        f"forgot consumer group {scene.group}: 1 progress records and its offsets; it had {UNFINISHED}\n"
    )
    assert len(scene.letters()) == 1
