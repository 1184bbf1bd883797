"""OpenTelemetry spans of batches, linked to the spans of their messages, if OpenTelemetry is set up.

A batch has many parents, so its span links to them and has no parent. Messages keep ``traceparent`` and ``tracestate``.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from agents.batch.batch import DueRecords, Record

try:
    from opentelemetry import trace as _trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    _trace = None

LINKS_MAX: Final = 128
"""Default limit of links for each span in OpenTelemetry."""
PARENT: Final = "traceparent"
STATE: Final = "tracestate"


@contextlib.contextmanager
def batch_span(lane: str, due: Sequence[DueRecords]) -> Iterator[None]:
    """Span of the processing of batches from one topic. It records an exception and raises it again."""
    if _trace is None:
        yield
        return
    tracer = _trace.get_tracer("ringfence")
    topic = due[0].batch.topic
    with tracer.start_as_current_span(f"process {topic}", kind=_trace.SpanKind.CONSUMER) as span:
        if span.is_recording():
            span.set_attributes(
                {
                    "messaging.system": "kafka",
                    "messaging.operation.type": "process",
                    "messaging.destination.name": topic,
                    "messaging.destination.partition.id": ",".join(str(batch.partition) for batch, _ in due),
                    "messaging.batch.message_count": sum(len(records) for _, records in due),
                    "ringfence.lane": lane,
                }
            )
            for context in _contexts(record for _, records in due for record in records):
                span.add_link(context)
        yield


def _contexts(records: Iterable[Record]) -> Iterator[Any]:
    """Return distinct span contexts of the records, up to :data:`LINKS_MAX`."""
    propagator, seen = TraceContextTextMapPropagator(), set()
    for record in records:
        parent = _text(record, PARENT)
        if not parent or parent in seen:
            continue
        seen.add(parent)
        carrier = {PARENT: parent, STATE: _text(record, STATE)}
        context = _trace.get_current_span(propagator.extract(carrier, {})).get_span_context()
        if context.is_valid:
            yield context
        if len(seen) >= LINKS_MAX:
            return


def _text(record: Record, name: str) -> str:
    """Return the value of the last header with this name and a value, as ASCII text; empty if there is none."""
    found = next((value for header, value in reversed(record.headers) if header == name and value), b"")
    return found.decode("ascii", errors="replace")
