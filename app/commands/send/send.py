"""``ringfence send``: publishes JSON lines from a file or standard input, like any producer."""

import asyncio
import codecs
import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Final

from confluent_kafka import KafkaError
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from app.commands.send.json_lines import InputError, parse
from app.commands.send.send_record import Composer
from app.commands.send.sender import AWAY, DELIVERY_LIMIT_S, Sender
from app.commands.topics.topics import connected
from ringfence_kafka.admin.topic_admin import describe
from ringfence_kafka.admin.topics import TopicDescription
from ringfence_kafka.config.settings import AddressSettings, KafkaSettings, Settings
from ringfence_kafka.errors import BrokerUnavailableError, MissingTopicError, RingfenceError
from ringfence_kafka.process.step_progress import steps, watched
from ringfence_kafka.protocol import offset_ranges
from ringfence_kafka.wording import counted

_RANGES_SHOWN_MAX: Final = 20


async def input_topic(kafka: KafkaSettings, name: str) -> TopicDescription:
    """Describe the topic, without creating it.

    Raises:
        BrokerUnavailableError: No broker answers, or all deny access.
        MissingTopicError: The topic does not exist, or this user may not see it.
    """
    async with connected(kafka) as admin:
        topics, refused = await describe(admin, [name])
    if name in refused:
        raise MissingTopicError(f"topic {name!r} cannot be used: allow this user Describe on it")
    if name not in topics:
        raise MissingTopicError(f"topic {name!r} does not exist: run 'ringfence topics create'")
    return topics[name]


def send_lines(settings: Settings, address: str, file: str | Path | None = None) -> int:
    """Send ``file``, or standard input if it is None, to ``address``; return 0.

    It stops at the first invalid or refused line. All lines before it are delivered, and no later line of its
    group is written.

    Raises:
        ConfigurationError: Another address writes this input.
        InputError: A line or the file cannot be sent. The message has the number of sent messages.
        BrokerUnavailableError: No broker answers.
        MissingTopicError: The topic does not exist.
    """
    found = settings.configured(address)
    settings.require_own_input(found, "nothing was sent")
    name = "standard input" if file is None else str(file)
    with _opened(file, name) as stream:
        topic = asyncio.run(input_topic(settings.kafka, found.input_topic))
        composer = Composer(found, settings.transaction_targets(found), topic.partitions)
        sender = Sender(settings.kafka, found.partitioner, topic)
        began = time.monotonic()
        fault = _send_all(stream, sender, composer, found, name)
    if sender.refused is not None:  # refers to a line before the invalid one
        fault = _refusal(sender.refused, name, settings.kafka)
    if fault is not None:
        raise type(fault)(f"{fault}\n{_what_now(sender, found)}")
    sys.stderr.write(
        f"sent {counted(sender.sent, 'message')} to {address} in {time.monotonic() - began:.1f} s\n"
    )
    return 0


def _send_all(
    stream: IO[bytes], sender: Sender, composer: Composer, address: AddressSettings, name: str
) -> RingfenceError | None:
    """Read and send all lines, and wait for delivery; return the first invalid line as an error."""
    fault = None
    with _progress(stream, sender) as advance:
        try:
            for number, raw in enumerate(_lines(stream), 1):
                if not raw.strip():
                    continue
                try:
                    record = composer.compose(parse(raw, address.id_headers))
                except ValueError as error:
                    fault = InputError(f"{name} line {number}: {error}")
                    break
                sender.send(number, record)
                if sender.refused is not None:
                    break
                advance(sender.sent, len(raw))
            sender.finish()
        except ValueError as error:
            fault = InputError(f"{name}: {error}")
        except KeyboardInterrupt:
            sender.finish()
            sys.stderr.write(f"interrupted: {_what_now(sender, address)}\n")
            raise
    return fault


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file, without the UTF-8 byte order mark that some editors write.

    Raises:
        ValueError: The file is UTF-16 or UTF-32.
    """
    first = stream.readline()
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)):
        raise ValueError("it begins with a byte order mark of UTF-16 or UTF-32: save it as UTF-8")
    if first:
        yield first.removeprefix(codecs.BOM_UTF8)
    yield from stream


def _refusal(refused: tuple[int, KafkaError], name: str, kafka: KafkaSettings) -> RingfenceError:
    number, error = refused
    if error.code() in AWAY:
        return BrokerUnavailableError(
            f"{name} line {number}: no broker at kafka.bootstrap_servers = {kafka.bootstrap_servers!r} took it within "
            f"{DELIVERY_LIMIT_S:g} s: start the broker again"
        )
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return InputError(
            f"{name} line {number}: larger than the broker takes: make it smaller, or raise the topic's max.message.bytes"
        )
    return InputError(f"{name} line {number}: the broker refused it ({error.str()}): fix that")


def _what_now(sender: Sender, address: AddressSettings) -> str:
    kept = address.id_cache_size and not address.observes
    again = "is not accepted twice" if kept else "passes once more, as this address drops no duplicates"
    said = f"{counted(sender.sent, 'message')} sent before it ended"
    if sender.refused is not None:
        return f"{said}. {_by_line(sender, again)}"
    if sender.sent_without_id:
        return (
            f"{said}, {sender.sent_without_id} of them without an ID: sending those again would repeat them"
        )
    return (
        f"{said}: send everything again; each message that was sent has an ID and {again}"
        if sender.sent
        else said
    )


def _by_line(sender: Sender, again: str) -> str:
    repeated = sender.sent_without_id + sender.doubtful_without_id
    shown_max = None if repeated else _RANGES_SHOWN_MAX
    missing = {*sender.unwritten, *sender.doubtful}
    written = [index for index in range(1, sender.last + 1) if index not in missing]
    said = [f"Written: {_shown(written, shown_max)}."]
    if sender.doubtful:
        said.append(
            f"Unknown, because the answer is missing: {_shown(sender.doubtful, shown_max)}; they may be "
            "written."
        )
    unwritten = f"{_shown(sender.unwritten, shown_max)} and " if sender.unwritten else ""
    said.append(f"Not written: {unwritten}all lines after line {sender.last}.")
    if not repeated:
        said.append(f"Then send everything again: each written message has an ID and {again}")
        return " ".join(said)
    if sender.doubtful_without_id:
        said.append(
            f"{sender.doubtful_without_id} of the unknown ones have no ID: look whether they are in the topic."
        )
    said.append(f"Then send only what is not written: lines without an ID ({repeated}) would be repeated")
    return " ".join(said)


def _shown(numbers: Sequence[int], ranges_max: int | None) -> str:
    found = offset_ranges.texts(offset_ranges.of_offsets(sorted(numbers)))
    if not found:
        return "no line"
    rest = f" and {len(found) - ranges_max} more ranges" if ranges_max and len(found) > ranges_max else ""
    return f"line{'s' * (len(numbers) != 1)} {', '.join(found[:ranges_max])}{rest}"


def _opened(file: str | Path | None, name: str) -> contextlib.AbstractContextManager[IO[bytes]]:
    if file is None:
        return contextlib.nullcontext(sys.stdin.buffer)
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise InputError(
            f"{name}: {error.strerror}: name a readable file, or - for standard input"
        ) from error


@contextlib.contextmanager
def _progress(stream: IO[bytes], sender: Sender) -> Iterator[Callable[[int, int], None]]:
    """Yield ``advance(sent, bytes read)`` for a progress bar; without a terminal, print lines."""
    if not watched():
        # no final line here, because the command prints its own
        with steps(brief_s=math.inf) as progress:
            progress.start_step("sending")
            progress.count(lambda: f"{counted(sender.sent, 'message')} acknowledged")
            yield lambda _sent, _size: None
        return
    if stream is sys.stdin.buffer and stream.isatty():
        yield lambda _sent, _size: None
        return
    size = None if stream is sys.stdin.buffer else Path(stream.name).stat().st_size
    columns = TextColumn("{task.fields[sent]} acknowledged"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=size, sent=0)
        yield lambda sent, length: progress.update(task, advance=length, sent=sent)
