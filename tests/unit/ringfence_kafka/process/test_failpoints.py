import os
import re
import signal
from collections.abc import Iterator
from unittest.mock import AsyncMock, Mock

import pytest

from ringfence_kafka.errors import ConfigurationError
from ringfence_kafka.process import failpoints
from ringfence_kafka.process.failpoints import POINTS, install, install_from_environment, reach


@pytest.fixture(autouse=True)
def nothing_installed() -> Iterator[None]:
    failpoints._actions.clear()
    yield
    failpoints._actions.clear()


async def test_install_and_remove() -> None:
    """An action is called at its point and lane, and nowhere else, until it is removed; removing twice is well."""
    action = AsyncMock()
    remove = install("after-commit", "orders-0", action)

    for place in (("after-commit", "orders-0"), ("after-commit", "orders-1"), ("before-commit", "orders-0")):
        await reach(*place)
    remove()
    remove()
    await reach("after-commit", "orders-0")

    action.assert_awaited_once_with("after-commit", "orders-0")


def test_unknown_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown point is refused, and the error lists the known ones. A fault that never happens would prove nothing."""
    expected = f"'after-comit' is no fail point: known are {', '.join(sorted(POINTS))}"
    monkeypatch.setenv("RINGFENCE_FAILPOINTS", "after-comit:*=kill")

    for misspelt in (install_from_environment, lambda: install("after-comit", "orders-0", AsyncMock())):
        with pytest.raises(ConfigurationError, match=re.escape(expected)):
            misspelt()
    assert failpoints._actions == {}


@pytest.mark.parametrize(
    "setting",
    ["after-commit", "after-commit:orders-0", "after-commit=kill", "after-commit:=kill",
     *(f"after-commit:orders-0={action}" for action in ("sleep", "kill@x", "kill@0", "kill now"))],
)  # fmt: skip
def test_environment_cannot_be_read(monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    """A setting that cannot be read, or could never happen, is refused; the text names it and the expected form."""
    monkeypatch.setenv("RINGFENCE_FAILPOINTS", f"opening:*=kill,{setting}")

    with pytest.raises(ConfigurationError) as caught:
        install_from_environment()

    assert str(caught.value) == (
        f"environment: RINGFENCE_FAILPOINTS: {setting!r} is not POINT:LANE=kill or POINT:LANE=stop, with or without @N"
    )


@pytest.mark.parametrize(("action", "number"), [("kill", signal.SIGKILL), ("stop", signal.SIGSTOP)])
async def test_at_the_nth(monkeypatch: pytest.MonkeyPatch, action: str, number: int) -> None:
    """The process is killed or frozen at the nth arrival, and not again. Under ``*`` each lane counts its own."""
    kill = Mock()
    monkeypatch.setattr(os, "kill", kill)
    points = f"after-commit:orders-0={action}@3, before-commit:*={action}@2"
    monkeypatch.setenv("RINGFENCE_FAILPOINTS", points)
    install_from_environment()
    counts = []

    for _ in range(5):
        await reach("after-commit", "orders-0")
        await reach("after-commit", "orders-1")
        counts.append(kill.call_count)

    assert counts == [0, 0, 1, 1, 1]
    kill.assert_called_once_with(os.getpid(), number)
    for lane, sent in (("orders-0", 1), ("orders-1", 1), ("orders-1", 2)):
        await reach("before-commit", lane)
        assert kill.call_count == sent
