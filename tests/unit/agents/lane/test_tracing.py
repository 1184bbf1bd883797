"""A batch's span is linked to what its messages carry; without OpenTelemetry nothing is done."""

from collections.abc import Iterator
from typing import Any

import pytest

from agents.batch.batch import DueRecords, FetchedBatch
from agents.lane import tracing
from agents.lane.tracing import LINKS_MAX, batch_span
from tests.unit.agents.decision.test_decide import Given


def _due(partition: int, records: list[Any]) -> list[DueRecords]:
    return [DueRecords(FetchedBatch("orders", partition, 0, 9, records, 0), records)]


def _parent(trace: int) -> bytes:
    return f"00-{trace:032x}-{7:016x}-01".encode()


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    pytest.importorskip("opentelemetry.sdk", reason="not installed: pip install opentelemetry-sdk")
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield exporter
    provider.shutdown()


def test_linked(exporter: Any) -> None:
    """A span is linked once to each trace, by the last header of that name, and to no malformed trace. It reports exceptions."""
    records = [
        Given(0, None, (("traceparent", _parent(1)), ("tracestate", b"vendor=x"))),
        Given(1, None, (("traceparent", _parent(1)),)),
        Given(2, None, (("traceparent", _parent(9)), ("traceparent", _parent(2)))),
        Given(3, None, (("traceparent", b"\xff nonsense"),)),
        Given(4, None, (("traceparent", None), ("other", b"1"))),
        Given(5),
    ]
    with pytest.raises(OSError, match="away"), batch_span("orders-3", _due(3, records)):
        raise OSError("away")
    (span,) = exporter.get_finished_spans()

    assert not span.status.is_ok
    assert span.name == "process orders"
    assert span.parent is None
    assert [link.context.trace_id for link in span.links] == [1, 2]
    assert span.links[0].context.trace_state["vendor"] == "x"
    assert span.attributes["messaging.batch.message_count"] == 6
    assert span.attributes["ringfence.lane"] == "orders-3"


def test_bounded(exporter: Any) -> None:
    """The span of a batch of thousands has as many links as it can hold."""
    records = [Given(at, None, (("traceparent", _parent(at + 1)),)) for at in range(5_000)]
    with batch_span("orders-0", _due(0, records)):
        pass
    (span,) = exporter.get_finished_spans()

    assert len(span.links) == LINKS_MAX


def test_without_opentelemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "_trace", None)
    done = []
    with batch_span("orders-0", _due(0, [])):
        done.append(1)
    with pytest.raises(OSError, match="away"), batch_span("orders-0", _due(0, [])):
        raise OSError("away")

    assert done == [1]
