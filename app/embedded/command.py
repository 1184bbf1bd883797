"""``ringfence broker``: the embedded broker in the foreground."""

import contextlib
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

import click

from app.embedded import properties
from app.embedded.broker import EmbeddedBroker
from ringfence_kafka.errors import PrerequisiteError

_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class _StopRequestedError(BaseException):
    """A signal asked the process to end; not an Exception, so that nothing on the way takes it for a fault."""


def run_broker(port: int, directory: Path, pairs: Sequence[str] = (), version: str | None = None) -> int:
    """Run the broker until SIGTERM, Ctrl-C or a closed terminal, then end it in order.

    Args:
        port: Where clients connect; 0 = a free one, which the line on standard output names.
        directory: Keeps the data; the next start goes on with it.
        pairs: Properties of the broker, each ``KEY=VALUE``; they hold for this start.
        version: Of Kafka; None = the one that the environment names, else the usual one.

    Returns:
        The exit code: 0.

    Raises:
        PrerequisiteError: it cannot run, or it ended by itself.
        ConfigurationError: a property cannot be set, or there is none of that name.
    """
    wanted = properties.parsed(pairs)
    broker = EmbeddedBroker(directory, port, properties=wanted, version=version)
    try:
        with _stop_signals():
            try:
                broker.start()
                if wanted:
                    _see_that_all_are_known(broker, wanted)
                click.echo(
                    f"Kafka {broker.version} answers at {broker.bootstrap_servers}, data in {broker.directory}; "
                    "Ctrl-C stops it"
                )
                broker.wait()
            finally:
                with _deaf():
                    broker.stop()
    except _StopRequestedError:
        return 0
    raise PrerequisiteError(
        f"the broker ended by itself: fix what its log names, and start it again:\n{broker.log_tail()}"
    )


def _see_that_all_are_known(broker: EmbeddedBroker, wanted: Mapping[str, str]) -> None:
    """Kafka itself passes over a misspelt one."""
    described = broker.described_properties()
    if strange := properties.unknown(wanted, described):
        raise properties.no_such(strange, described)


@contextlib.contextmanager
def _stop_signals() -> Iterator[None]:
    """Turn stop signals into an exception, save those that our starter chose to ignore (nohup does)."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise _StopRequestedError

    before = {item: signal.getsignal(item) for item in _STOP_SIGNALS}
    heeded = [item for item in _STOP_SIGNALS if before[item] != signal.SIG_IGN]
    try:
        for signals in heeded:
            signal.signal(signals, stop)
        yield
    finally:
        for signals in heeded:
            signal.signal(signals, before[signals])


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """Let no second Ctrl-C interrupt the orderly end, which has a limit of its own."""
    before = {item: signal.signal(item, signal.SIG_IGN) for item in _STOP_SIGNALS}
    try:
        yield
    finally:
        for signals, handler in before.items():
            signal.signal(signals, handler)
