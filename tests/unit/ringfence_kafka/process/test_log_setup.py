"""How a process logs: as text, or as an object a line; how much; and what the command line says of it."""

import asyncio
import gc
import json
import logging
from collections.abc import Iterator

import click
import pytest

from app.commands.bridges.cli import bridge
from app.commands.worker import worker
from ringfence_client.__main__ import consume
from ringfence_kafka.process import log_setup
from ringfence_kafka.process.log_setup import log_options


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("ringfence")
    handlers, level, own = root.handlers[:], root.level, ours.level
    yield
    log_setup.choose(log_level="info", log_format="text")
    root.handlers[:] = handlers
    root.setLevel(level)
    ours.setLevel(own)


def _configured(*arguments: str) -> None:
    @click.command()
    @log_options
    def program() -> None:
        log_setup.configure()

    program.main(list(arguments), standalone_mode=False)


def test_what_every_rebalance_brings(capfd: pytest.CaptureFixture[str]) -> None:
    """A usual line of a rebalance is not a warning; other lines of the same libraries are."""
    _configured()
    group = logging.getLogger("aiokafka.consumer.group_coordinator")
    group.warning("Heartbeat failed for group %s because it is rebalancing", "orders")
    logging.getLogger("app.worker.run").warning("[^-RingfenceApp]: Missing sensor state for rebalance #%s", 2)
    group.warning("Heartbeat failed: local member_id was not recognized;")

    assert capfd.readouterr().err.count("\n") == 1


def test_futures_of_connections(capfd: pytest.CaptureFixture[str]) -> None:
    """A refused connection leaves no line about its future; the error of a failed task is always logged."""
    _configured()

    async def fail() -> None:
        raise OSError("no room")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.create_future().set_exception(OSError("refused"))
        loop.create_future().set_exception(ValueError("a bug"))
        await asyncio.wait([loop.create_task(fail())])

    asyncio.run(main())
    gc.collect()
    told = capfd.readouterr().err

    assert [said in told for said in ("refused", "a bug", "no room")] == [False, True, True]


def test_text_of_others(capfd: pytest.CaptureFixture[str]) -> None:
    """A producer's name or a handler's error adds no line of its own and clears no screen; traces keep their lines."""
    _configured()
    log = logging.getLogger("ringfence.consumer")
    log.warning("group %s", "a\n2026-11-22 ERROR all is lost\x1b[2J")
    logging.getLogger("mode").warning("a table:\n| x |\x1b[0m")
    log.error("failed", exc_info=ValueError("no\nstock\x07"))
    told = capfd.readouterr().err.splitlines()

    assert told[0].endswith(r"ringfence.consumer: group a\n2026-11-22 ERROR all is lost\x1b[2J")
    assert [told[1].endswith("mode: a table:"), told[2]] == [True, r"| x |\x1b[0m"]
    assert told[3].endswith("ringfence.consumer: failed")
    assert told[-2:] == ["ValueError: no", r"stock\x07"]


def test_json(capfd: pytest.CaptureFixture[str]) -> None:
    """Every line is an object, whatever it contains: quotes, line ends, half of a surrogate pair, and traces."""
    _configured("--log-format", "json")
    log = logging.getLogger("ringfence.lane")
    log.warning('a "quote"\nand \ud800 more')
    log.error("failed", exc_info=ValueError("no\nstock"))
    plain, failed = map(json.loads, capfd.readouterr().err.splitlines())

    assert plain["time"].endswith("+00:00")
    assert (plain["level"], plain["logger"]) == ("warning", "ringfence.lane")
    assert plain["message"] == 'a "quote"\nand \ud800 more'
    assert "trace" not in plain
    assert failed["trace"].endswith("ValueError: no\nstock")


def test_level(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The level applies to Ringfence; libraries log only warnings. The command line overrides the environment."""
    log = logging.getLogger("ringfence.lane")
    _configured()
    log.info("lane %s", "orders-0")
    log.debug("not shown")
    assert capfd.readouterr().err.endswith("INFO    ringfence.lane: lane orders-0\n")
    monkeypatch.setenv("RINGFENCE_LOG_FORMAT", "json")
    monkeypatch.setenv("RINGFENCE_LOG_LEVEL", "error")
    _configured()
    log.warning("not shown")
    _configured("--log-level", "debug")
    logging.getLogger("aiokafka").debug("not shown")
    log.debug("shown")

    assert json.loads(capfd.readouterr().err)["message"] == "shown"


def test_wrong_level() -> None:
    with pytest.raises(click.BadParameter, match="'debug', 'info', 'warning', 'error'"):
        _configured("--log-level", "loud")


@pytest.mark.parametrize("command", [worker, bridge, consume])
def test_programs_that_go_on(command: click.Command) -> None:
    assert {"--log-level", "--log-format"} <= {opt for option in command.params for opt in option.opts}
