"""The address that simulated workers serve, and its topics."""

import functools
from typing import Final

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
COMPACTED: Final = {"cleanup.policy": "compact"}


@functools.lru_cache
def settings_of(instance: str, capacity: int, divert: bool) -> Settings:
    """Of a worker."""
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
                }
            ],
        }
    )
