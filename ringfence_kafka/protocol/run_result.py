"""Result of the last reconciliation run, which the run commits for status, pages and alerts. Pure.

It is the metadata of a committed offset: the group is :func:`ringfence_kafka.protocol.wire_names.run_group`, the partition is the journal's.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import msgspec

PARTITION: Final = 0
"""The only partition of the journal."""
CLEAN: Final = "clean"
FAILED: Final = "failed"
BYTES_MAX: Final = 4_000
TEXT_MAX: Final = 600
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """Findings of the last run, and the location of its report."""

    verdict: str
    """``clean``, ``anomalies``, ``gap``, or :data:`FAILED`: the run ended with an error and has no findings."""
    began_ms: int
    ended_ms: int
    since_ms: int | None = None
    """Start of the run that this one continued; None = it began at the start of the logs, or it failed."""
    number: int = 0
    """Number of the run; 0 = it failed."""
    messages: int = 0
    """Number of inputs that it judged."""
    duplicates: int = 0
    anomalies: Mapping[str, int] = field(default_factory=dict)
    """Number of records by anomaly over all addresses, without zeros. OVERRUN may occur in a clean run too."""
    report: str = ""
    """Path or URI of the report page; empty = none."""
    host: str = ""
    """Host of the run, which has the path of :attr:`report`."""
    error: str = ""
    """Cause of a failure."""
    acknowledged: bool = False
    """Whether a person has acknowledged the anomalies or the gap."""

    @property
    def ok(self) -> bool:
        """Whether no person has to look at the run."""
        return self.verdict == CLEAN or self.acknowledged


def encode(result: RunResult) -> str:
    """Return the text to commit. It fits the brokers' default of ``offset.metadata.max.bytes``."""
    text = _dump(replace(result, error=result.error[:TEXT_MAX]))
    return text if len(text.encode()) <= BYTES_MAX else _dump(replace(result, error="", report=""))


def _dump(result: RunResult) -> str:
    given = {
        key: value
        for key, value in asdict(result).items()
        if value not in ("", None, {}) and value is not False
    }
    return json.dumps({"format": _FORMAT, **given}, ensure_ascii=False, separators=(",", ":"))


def decode(text: str) -> RunResult | None:
    """Read a committed text; None = another version or another program wrote it."""
    try:
        # librdkafka appends a zero byte to the metadata that it commits.
        found: dict[str, Any] = json.loads(text.rstrip("\0"))
        if found["format"] != _FORMAT:
            return None
        return msgspec.convert(found, RunResult)
    except (ValueError, KeyError, TypeError, msgspec.ValidationError):
        return None
