"""IDs of log messages: each line of a program has one, and an operator finds what it means."""

import ast
import json
import logging
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ringfence_kafka.process import log_setup
from ringfence_kafka.process.log_setup import FORMAT, JsonFormatter, TextFormatter

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
    logged = {
        (logger, text): level
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        for logger, level, text in _logged(path)
    }
    entries = log_setup.catalog()

    assert {(entry["logger"], entry["text"]): entry["level"] for entry in entries.values()} == logged
    assert max(Counter((entry["logger"], entry["text"]) for entry in entries.values()).values()) == 1


def test_problems_are_explained() -> None:
    """Each warning and error says what it means for messages, and what to do."""
    unexplained = [
        name
        for name, entry in log_setup.catalog().items()
        if entry["level"] != "info" and not (entry.get("means") and entry.get("do"))
    ]
    assert unexplained == []


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
