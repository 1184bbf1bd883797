"""The address that simulated workers serve, and its topics."""

import functools
from typing import Any, Final

from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import Settings

ADDRESS: Final = "orders"
APP: Final = "app"
ACCEPTED: Final = f"{ADDRESS}.accepted"
DUPLICATES: Final = f"{ADDRESS}.duplicates"
QUARANTINE: Final = f"{ADDRESS}.quarantine"
CHANGELOG: Final = f"{APP}-{ADDRESS}-changelog"
FORWARD: Final = f"{APP}-{ADDRESS}-forward"
JOURNAL: Final = f"{APP}-journal"
OTHER: Final = "payments"
"""An address without lanes in any worker here: parts of transactions are for it."""
OTHERS_ACCEPTED: Final = f"{OTHER}.accepted"
OF_OTHER: Final = (
    OTHER, OTHERS_ACCEPTED, f"{OTHER}.duplicates", f"{OTHER}.quarantine", f"{APP}-{OTHER}-forward", f"{APP}-{OTHER}-changelog",
)  # fmt: skip
COMPACTED: Final = {"cleanup.policy": "compact"}


@functools.lru_cache
def settings_of(
    instance: str,
    capacity: int,
    divert: bool,
    *,
    envelopes: bool = False,
    lanes: int = 0,
    observe: bool = False,
) -> Settings:
    named: dict[str, Any] = {"transaction_addresses": [OTHER]} if envelopes else {}
    named |= {"lanes": lanes} if lanes else {}
    mode = "observe" if observe else "enforce"
    return validate(
        {
            "kafka": {"bootstrap_servers": "simulated:9092"},
            "app": {"id": APP, "instance": instance, "data_dir": "/simulated"},
            "addresses": [
                {
                    "name": ADDRESS,
                    "id_cache_size": capacity,
                    "partitioner": "crc32",
                    "duplicates": "divert" if divert else "drop",
                    "mode": mode,
                    **named,
                },
                *([{"name": OTHER, "partitioner": "crc32", "mode": mode}] if envelopes else []),
            ],
        }
    )
