import os
import signal
from collections.abc import Iterator

import pytest

from ringfence_kafka.errors import ConfigurationError
from ringfence_kafka.process import failpoints
from ringfence_kafka.process.failpoints import POINTS, install, install_from_environment, reach


@pytest.fixture(autouse=True)
def nothing_installed() -> Iterator[None]:
    """Each test begins and ends without actions."""
    failpoints._actions.clear()
    yield
    failpoints._actions.clear()


@pytest.fixture
def kills(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Signals that would have been sent."""
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    return sent


class Reached:
    """An action that notes where it was called."""

    def __init__(self) -> None:
        self.at: list[tuple[str, str]] = []

    async def __call__(self, point: str, lane: str) -> None:
        self.at.append((point, lane))


async def test_without_action() -> None:
    """A point without action does nothing, and any lane may reach it."""
    for point in POINTS:
        await reach(point, "orders-0")


async def test_install_and_remove() -> None:
    """An action is called at its point and lane, and nowhere else, until it is removed; removing twice is well."""
    reached = Reached()
    remove = install("after-commit", "orders-0", reached)

    await reach("after-commit", "orders-0")
    await reach("after-commit", "orders-1")
    await reach("before-commit", "orders-0")
    assert reached.at == [("after-commit", "orders-0")]

    remove()
    remove()
    await reach("after-commit", "orders-0")

    assert reached.at == [("after-commit", "orders-0")]


async def test_any_lane() -> None:
    """The lane ``*`` stands for any lane, and an action of the lane itself takes precedence."""
    of_any, of_one = Reached(), Reached()
    install("opening", "*", of_any)
    install("opening", "orders-1", of_one)

    for lane in ("orders-0", "orders-1"):
        await reach("opening", lane)

    assert of_any.at == [("opening", "orders-0")]
    assert of_one.at == [("opening", "orders-1")]


def test_unknown_point() -> None:
    """A point that the code never reaches is refused with those that it does."""
    with pytest.raises(ConfigurationError) as caught:
        install("after-comit", "orders-0", Reached())

    assert str(caught.value) == f"'after-comit' is no fail point: known are {', '.join(sorted(POINTS))}"
    assert failpoints._actions == {}


@pytest.mark.parametrize(
    ("setting", "culprit"),
    [
        ("after-commit", "after-commit"),
        ("after-commit:orders-0", "after-commit:orders-0"),
        ("after-commit=kill", "after-commit=kill"),
        ("after-commit:=kill", "after-commit:=kill"),
        ("after-commit:orders-0=sleep", "after-commit:orders-0=sleep"),
        ("after-commit:orders-0=kill@", "after-commit:orders-0=kill@"),
        ("after-commit:orders-0=kill@x", "after-commit:orders-0=kill@x"),
        ("after-commit:orders-0=kill@-1", "after-commit:orders-0=kill@-1"),
        ("after-commit:orders-0=kill@0", "after-commit:orders-0=kill@0"),
        ("after-commit:orders-0=kill now", "after-commit:orders-0=kill now"),
        ("opening:*=kill,nonsense", "nonsense"),
    ],
)
def test_environment_cannot_be_read(monkeypatch: pytest.MonkeyPatch, setting: str, culprit: str) -> None:
    """A setting that cannot be read, or could never happen, is refused; the text names it and the expected form."""
    monkeypatch.setenv("RINGFENCE_FAILPOINTS", setting)

    with pytest.raises(ConfigurationError) as caught:
        install_from_environment()

    assert str(caught.value) == (
        f"environment: RINGFENCE_FAILPOINTS: {culprit!r} is not POINT:LANE=kill or POINT:LANE=stop, with or without @N"
    )


def test_environment_names_an_unknown_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt failpoint in the variable is refused, because a fault that never happens proves nothing."""
    monkeypatch.setenv("RINGFENCE_FAILPOINTS", "after-comit:*=kill")

    with pytest.raises(ConfigurationError, match="'after-comit' is no fail point"):
        install_from_environment()


async def test_kill_at_the_nth(monkeypatch: pytest.MonkeyPatch, kills: list[tuple[int, int]]) -> None:
    """The process is killed when the lane reaches the point for the nth time, not before and not again."""
    monkeypatch.setenv("RINGFENCE_FAILPOINTS", "after-commit:orders-0=kill@3, opening:*=kill")
    install_from_environment()
    counts = []

    for _ in range(5):
        await reach("after-commit", "orders-0")
        await reach("after-commit", "orders-1")
        counts.append(len(kills))

    assert counts == [0, 0, 1, 1, 1]
    assert kills == [(os.getpid(), signal.SIGKILL)]
    await reach("opening", "orders-7")
    assert len(kills) == 2


async def test_any_lane_counts_for_itself(
    monkeypatch: pytest.MonkeyPatch, kills: list[tuple[int, int]]
) -> None:
    """Under ``*`` each lane counts its own arrivals."""
    monkeypatch.setenv("RINGFENCE_FAILPOINTS", "after-commit:*=kill@2")
    install_from_environment()

    for lane in ("orders-0", "orders-1", "orders-2"):
        await reach("after-commit", lane)
    assert kills == []

    await reach("after-commit", "orders-1")

    assert len(kills) == 1


async def test_stop(monkeypatch: pytest.MonkeyPatch, kills: list[tuple[int, int]]) -> None:
    """``=stop`` freezes the process at the point instead."""
    monkeypatch.setenv("RINGFENCE_FAILPOINTS", "before-commit:orders-0=stop@2")
    install_from_environment()

    for _ in range(3):
        await reach("before-commit", "orders-0")

    assert kills == [(os.getpid(), signal.SIGSTOP)]
