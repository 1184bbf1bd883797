"""Commits the result of a run to a consumer group, for status, pages and alerts on other machines."""

import datetime as dt
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from reconcile.cluster import retriable_errors
from reconcile.page import PAGE
from reconcile.run.history.history import Run, RunHistory
from reconcile.run.history.layout import results_folder
from ringfence_kafka.auth.reachability import require_listener
from ringfence_kafka.auth.tls import confluent_options
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import RingfenceError, said
from ringfence_kafka.protocol import run_result, wire_names
from ringfence_kafka.protocol.run_result import FAILED, RunResult

LIMIT_S: Final = 10.0


class _Group:
    """Consumer group that holds the result of the last run, without members."""

    def __init__(self, settings: Settings) -> None:
        """Connect, or raise BrokerUnavailableError if no broker listens."""
        require_listener(settings.kafka)
        self._group = wire_names.run_group(settings.app.id)
        self._journal = wire_names.journal_topic(settings.app.id)
        self.admin = AdminClient(confluent_options(settings.kafka))

    def commit(self, result: RunResult) -> None:
        place = TopicPartition(self._journal, run_result.PARTITION)
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        (end,) = self.admin.list_offsets({place: latest}, request_timeout=LIMIT_S).values()
        # Commit at the journal's end, so that tools do not report a lag of this group.
        at = TopicPartition(self._journal, place.partition, end.result().offset, run_result.encode(result))
        wanted = ConsumerGroupTopicPartitions(self._group, [at])
        answer = self.admin.alter_consumer_group_offsets([wanted], request_timeout=LIMIT_S)
        _checked(answer[self._group].result())

    def last(self) -> RunResult | None:
        place = TopicPartition(self._journal, run_result.PARTITION)
        wanted = ConsumerGroupTopicPartitions(self._group, [place])
        answer = self.admin.list_consumer_group_offsets([wanted], request_timeout=LIMIT_S)
        (found,) = _checked(answer[self._group].result())
        return run_result.decode(found.metadata or "")


def finished(document: Mapping[str, Any], runs: RunHistory, out: str | None, url: str = "") -> RunResult:
    """Return the result of a run from its ``summary.json``.

    ``out``: folder of ``--out`` if the page is there, else None; ``url``: ``reconcile.report_url``.
    """
    addresses = document["addresses"].values()
    folder = results_folder(document["night"])
    kept = f"{runs.files.root}/{folder}" if PAGE in runs.files.names(folder) else ""
    published = f"{url.rstrip('/')}/{folder.rpartition('/')[2]}" if url and kept else ""
    place = published or (out or kept).rstrip("/")
    base = runs.finished.get(document["from_night"] or 0)
    found: Counter[str] = Counter()
    for address in addresses:
        found.update({name: count for name, count in address["anomalies"].items() if count})
    return RunResult(
        verdict=document["verdict"],
        number=document["night"],
        began_ms=_ms(document["began"]),
        ended_ms=_now_ms(),
        since_ms=_ms(base.summary["began"]) if base and "began" in base.summary else None,
        messages=sum(address["input"] for address in addresses),
        duplicates=sum(address["duplicates"] for address in addresses),
        anomalies=dict(found),
        report=f"{place if '://' in place else Path(place).absolute()}/{PAGE}" if place else "",
        host=socket.gethostname(),
    )


def failed(began: dt.datetime, error: BaseException) -> RunResult:
    """Return the result of a run that ended with an error."""
    return RunResult(
        verdict=FAILED,
        began_ms=int(began.timestamp() * 1000),
        ended_ms=_now_ms(),
        host=socket.gethostname(),
        error=said(error),
    )


def commit(settings: Settings, result: RunResult) -> None:
    """Commit a result. If the cluster refuses or does not answer, it warns: the run itself is kept."""
    _ask(settings, lambda group: group.commit(result), "status, /metrics and alerts do not know this run")


def acknowledge(settings: Settings, seen: Run) -> None:
    """Mark the committed result as acknowledged if the run is. Problems are warnings: :func:`commit`."""

    def mark(group: _Group) -> None:
        last = group.last()
        if last is not None and last.number == seen.number:
            group.commit(replace(last, acknowledged=True))

    if seen.acknowledged:
        effect = f"status, /metrics and alerts show run {seen.number} as before until the next one"
        _ask(settings, mark, effect)


def _checked(answer: ConsumerGroupTopicPartitions) -> list[TopicPartition]:
    found = list(answer.topic_partitions or ())
    for item in found:
        if item.error is not None:
            raise KafkaException(item.error)
    return found


def _ask(settings: Settings, question: Callable[[_Group], None], effect: str) -> None:
    """Ask the group. A problem is a warning with its ``effect``."""
    try:
        group = _Group(settings)
        retriable_errors.asked(group.admin, lambda: question(group), LIMIT_S)
    except (KafkaException, RingfenceError) as error:
        name, why, do = wire_names.run_group(settings.app.id), said(error), ""
        if isinstance(error, KafkaException):
            refusal: KafkaError = error.args[0]
            why = refusal.str()
            if refusal.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                do = f": allow Read on group {name}; see docs/security.md"
        sys.stderr.write(f"ringfence: the result was not committed to group {name} ({why}): {effect}{do}\n")


def _ms(text: str) -> int:
    return int(dt.datetime.fromisoformat(text).timestamp() * 1000)


def _now_ms() -> int:
    return int(time.time() * 1000)
