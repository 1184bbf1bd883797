import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final
from unittest.mock import Mock

import click
import pytest
from aiokafka.errors import IllegalStateError, NodeNotReadyError
from confluent_kafka import KafkaError, KafkaException

import app.commands.topics.topics
from app import cli
from ringfence_client.__main__ import consume
from ringfence_kafka.errors import BrokerUnavailableError, TopicError
from ringfence_kafka.readers.log_reader import LogStalledError
from tests.support.terminal import entered


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "ringfence.toml"
    path.write_text('[[addresses]]\nname = "orders"\n')
    return str(path)


def _verbs(group: click.Group, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            if command.invoke_without_command:
                yield prefix + name, command
            yield from _verbs(command, f"{prefix}{name} ")
        else:
            yield prefix + name, consume if name == "consume" else command


WITHOUT_CONFIGURATION: Final = {"config schema", "init"}
"""Verbs that read no configuration."""
_CONSUME: Final = ("consume", "orders", "--handler", "a:b", "--consumer-group", "g")
_ARGUMENTS: Final = {
    "consume": ("orders", "--handler", "os:fspath"),
    "topics grow": ("orders", "--partitions", "8"),
    "rings regroup": ("orders", "--lanes", "1"),
    **dict.fromkeys(("rings find", "verdict"), ("orders", "1")),
    **{f"{name} show": ("orders", "0/1") for name in ("dlq", "quarantine")},
    **{f"groups {name}": ("orders", "group") for name in ("purge", "release", "skip")},
}
"""Arguments of verbs for which an address is not enough."""


def _verbs_except(*without: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each other verb, and the verb with the arguments that it needs."""
    for name, command in _verbs(cli.cli):
        if name in WITHOUT_CONFIGURATION.union(without):
            continue
        needed = [param for param in command.params if param.required]
        takes_address = any(isinstance(parameter, click.Argument) for parameter in needed)
        arguments = [*name.split(), *_ARGUMENTS.get(name, ("orders",) if takes_address else ())]
        if any("--consumer-group" in parameter.opts for parameter in needed):
            arguments += ["--consumer-group", "g"]
        yield name, arguments


def test_no_such_file(capsys: pytest.CaptureFixture[str]) -> None:
    """A missing configuration file ends with exit code 2, its name and the way out, without a traceback."""
    for verb in ("topics check", "worker", "send orders", "broker", "demo"):
        assert entered(*verb.split(), "--config", "nowhere.toml") == 2
        captured = capsys.readouterr()
        assert captured.err.startswith("ringfence: nowhere.toml: No such file")
        assert "--config FILE" in captured.err
        assert "Traceback" not in captured.err
        assert captured.out == ""


@pytest.mark.parametrize("content", ["", '[[addresses]]\nname = "orders-*"\nid_cache_size = 9\n'])
def test_no_addresses(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A verb on addresses ends with exit code 2 and names the missing entry if the file has none, or patterns alone."""
    path = tmp_path / "ringfence.toml"
    path.write_text(content)
    # A bridge's may be meant.
    quarantine = [f"quarantine {name}" for name in ("list", "show", "redrive", "drop")]
    without = ("audit", "bridge", "broker", "config check", "config show", "demo", "plan", *quarantine)
    for name, arguments in _verbs_except(*without):
        assert entered(*arguments, "--config", str(path)) == 2, name
        said = capsys.readouterr()
        complaint = f"ringfence: {path}: no addresses: add an [[addresses]] entry with a name"
        assert said.err.startswith(complaint), name
        assert said.out == ""


def test_every_verb_asks_the_cluster_that_was_named(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every verb asks the cluster of --bootstrap-server instead of the file's."""
    Path(config).write_text(
        '[kafka]\nbootstrap_servers = "127.0.0.1:2"\n[[addresses]]\nname = "orders"\n', "utf-8"
    )
    of_no_cluster = ("broker", "config check", "config show", "demo", "plan", "reconcile show")
    for name, arguments in _verbs_except("bridge", *of_no_cluster):  # a bridge waits until both answer
        named = ("--config", config, "--bootstrap-server", "127.0.0.1:1")

        assert entered(*arguments, *named) == 2, name
        said = capsys.readouterr().err
        assert "bootstrap_servers = '127.0.0.1:1'" in said, f"{name}: {said}"


def test_names_of_consumer_groups(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A name that no consumer group may have is a usage error in every verb: exit code 2, without a trace."""
    for name, complaint in (
        ("", "without a name"), ("a\nb", "cannot be printed"), ("\udcff", "cannot be printed"), ("x" * 40_000, "40000 bytes")
    ):  # fmt: skip
        for arguments in (_CONSUME, ("consumers", "show"), ("groups", "skip", "orders", "group")):
            assert entered(*arguments, "--config", config, "--consumer-group", name) == 2
            said = capsys.readouterr().err
            assert "Invalid value for '--consumer-group'" in said
            assert complaint in said
            assert "Traceback" not in said


def test_groups_show_is_incomplete(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The error names the missing argument, and the command that shows it."""
    for arguments, said in (
        (("--messages", "3"), "write ringfence groups show orders GROUP --messages 3"),
        (("a",), "add --consumer-group NAME; ringfence groups show orders lists them"),
    ):
        assert entered("groups", "show", "orders", *arguments, "--config", config) == 2
        assert said in capsys.readouterr().err


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--help"], ["worker", "--help"], ["topics", "create", "-h"]):
        assert entered(*arguments) == 0
        assert "Usage: ringfence" in capsys.readouterr().out
    for arguments, name in ((["--version"], "ringfence "), (["consume", "--version"], "ringfence-client ")):
        assert entered(*arguments) == 0
        assert capsys.readouterr().out.startswith(name)


_INTERNAL: Final = "ringfence: internal error, please report it with the lines above: "


def test_errors_become_exit_codes(
    config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error that a person can act on is one line. A trace to report belongs to unforeseen errors and to a client used wrongly."""
    for error, code, said in (
        (TopicError("t is wrong: fix it"), 1, "ringfence: t is wrong: fix it"),
        (BrokerUnavailableError("b is away: start it"), 2, "ringfence: b is away: start it"),
        (KeyboardInterrupt(), 130, ""),
        (NodeNotReadyError("node 1"), 2, "(NodeNotReadyError: node 1): look at the brokers"),
        (KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer")), 2, "no answer"),
        (TimeoutError(), 2, "(TimeoutError): look at the brokers"),
        (LogStalledError("orders/0: stuck at 5 of 9"), 2, "ringfence: orders/0: stuck at 5 of 9"),
        (ValueError("odd"), 2, f"{_INTERNAL}ValueError: odd"),
        (IllegalStateError("not assigned"), 2, f"{_INTERNAL}IllegalStateError: "),
    ):
        monkeypatch.setattr(app.commands.topics.topics, "check", Mock(side_effect=error))

        assert entered("topics", "check", "--config", config) == code
        lines = capsys.readouterr().err.strip().splitlines()
        assert said in (lines or [""])[-1]
        if said.startswith(_INTERNAL):
            assert lines[0].startswith("Traceback")
        else:
            assert len(lines) == (1 if said else 0)
    monkeypatch.setattr(app.commands.topics.topics, "check", Mock(return_value=3))
    assert entered("topics", "check", "--config", config) == 3  # the result of the verb


def test_bridge_status_is_a_verb(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    """``bridge status`` is recognized wherever it stands among the options. No bridge is configured here."""
    named = ("--config", config)
    for arguments in (("status", *named), (*named, "status"), (*named, "status", "--json")):
        assert entered("bridge", *arguments) == 2
        assert capsys.readouterr().err.startswith("ringfence: no bridges: add a [[bridges]]")


def test_no_option_takes_what_is_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    """No option accepts NaN, infinity, or an endless number of seconds or rates; the usage error names the option."""
    tried = set()
    for name, command in _verbs(cli.cli):
        for option in command.params:
            if not isinstance(option.type, click.types.FloatParamType):
                continue
            tried.add(option.opts[0])
            for value in ("nan", "inf", "1e30"):
                with pytest.raises(click.BadParameter) as caught:
                    option.type_cast_value(click.Context(command), value)
                assert "range" in str(caught.value), (name, option.opts, value)

    assert {"--rate", "--session-timeout", "--drain-timeout", "--broker-cores", "--confidence"} <= tried
    assert entered("plan", "--rate", "9" * 400, "--ids", "1k") == 2
    assert "Invalid value for '--rate'" in capsys.readouterr().err


def test_digits_too_many(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Too many digits are refused before a broker is asked. They would use up the machine's memory, or partitions."""
    for arguments, option in (
        (("topics", "grow", "orders"), "--partitions"),
        (("broker",), "--port"),
        *((_CONSUME, option) for option in ("--concurrency", "--prefetch", "--memory")),
    ):
        assert entered(*arguments, "--config", config, option, "10000000") == 2
        assert f"Invalid value for '{option}': 10000000 is not in the range" in capsys.readouterr().err


def _plan_to(output: IO[str], unbuffered: str) -> tuple[int, str]:
    """Return the exit code and the standard error of a command with this output."""
    done = subprocess.run(
        [sys.executable, "-m", "app", "plan", "--rate", "5", "--ids", "9"],
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    return done.returncode, done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such device on this system")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written(unbuffered: str) -> None:
    """A full output is reported in one line, without the trace of an internal error.

    A closed reader such as ``| head`` ends a command quietly, wherever the output waits.
    """
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        assert _plan_to(closed, unbuffered) == (1, "")
    with Path("/dev/full").open("w") as full:
        code, said = _plan_to(full, unbuffered)

    assert (code, said.count("\n")) == (2, 1)
    assert said.startswith("ringfence: the output cannot be written (No space left on device)")
