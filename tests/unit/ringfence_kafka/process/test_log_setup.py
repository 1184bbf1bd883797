import ast
import asyncio
import gc
import json
import logging
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from app.commands.bridges.cli import bridge
from app.commands.worker import worker
from ringfence_client.__main__ import consume
from ringfence_kafka.process import log_setup
from ringfence_kafka.process.log_setup import FORMAT, JsonFormatter, TextFormatter, log_options


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


# -- IDs of messages: an operator finds what a line means ---------------------------------------------------------


ROOT = Path(__file__).parents[4]
ROOMS = ("agents", "app", "native", "ringfence_client", "ringfence_kafka", "tables")
LEVELS = {"info": "info", "warning": "warning", "error": "error", "exception": "error"}


def _logged(path: Path) -> Iterator[tuple[str, str, str]]:
    tree = ast.parse(path.read_text("utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = [call.args[0] for call in calls if call.args and ast.unparse(call.func) == "logging.getLogger"]
    names = [node.value for node in named if isinstance(node, ast.Constant)]
    own = next((str(name) for name in names if str(name).startswith("ringfence.")), log_setup.ANY_LOGGER)
    for call in calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr in LEVELS:
            logger = {"log": own, "self._log": log_setup.ANY_LOGGER}.get(ast.unparse(call.func.value))
            if logger is not None:
                yield logger, LEVELS[call.func.attr], ast.literal_eval(call.args[0])


def test_each_line_has_an_id() -> None:
    """The catalogue has the messages of the code and no others. A new message gets an ID of its own; a reworded one keeps it."""
    paths = (path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    logged = {(logger, text): level for path in paths for logger, level, text in _logged(path)}
    entries = log_setup.catalog()

    assert {(entry["logger"], entry["text"]): entry["level"] for entry in entries.values()} == logged
    assert max(Counter((entry["logger"], entry["text"]) for entry in entries.values()).values()) == 1


def test_problems_are_explained() -> None:
    """Each warning and error says what it means for messages, and what to do."""
    problems = {name: entry for name, entry in log_setup.catalog().items() if entry["level"] != "info"}

    assert [name for name, entry in problems.items() if not (entry.get("means") and entry.get("do"))] == []


def test_the_line_shows_it() -> None:
    """Text ends with the ID, before a trace; an object has it as a field. Only Ringfence's own templates have one."""
    name, entry = next(
        item for item in log_setup.catalog().items() if re.findall("%.", item[1]["text"]) == ["%s"]
    )
    record = logging.LogRecord(entry["logger"], logging.INFO, "", 0, entry["text"], ("x",), None)

    assert TextFormatter(FORMAT).format(record).endswith(f" [{name}]")
    assert json.loads(JsonFormatter().format(record))["id"] == name
    assert log_setup.message_id(entry["logger"], ValueError("no text")) is None
    assert log_setup.message_id("aiokafka", entry["text"]) is None
