"""The limit of open files of a worker process."""

import contextlib
import logging
import resource
from typing import Final

from ringfence_kafka.config.settings import Settings

log: Final = logging.getLogger("ringfence.worker")

FILES_PER_LANE: Final = 12
"""Open files of one lane: RocksDB's, with some tables, and its share of connections."""
FILES_BESIDE_LANES: Final = 150


def raise_file_limit() -> None:
    """Raise this process's limit of open files from a shell's 1,024 to the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft not in {hard, resource.RLIM_INFINITY}:
        with contextlib.suppress(ValueError, OSError):  # some systems refuse the hard limit that they report
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def warn_of_file_limit(settings: Settings) -> None:
    """Warn if the hard limit is too low for all lanes of the configured addresses."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    lanes = sum(address.partitions for address in settings.addresses)
    needed = FILES_BESIDE_LANES + FILES_PER_LANE * lanes
    if most != resource.RLIM_INFINITY and most < needed:
        log.warning(
            "this process may open %d files, and a worker with all %d lanes needs %d. Lanes beyond the "
            "limit keep their state in memory. Raise the limit (ulimit -Hn %d, LimitNOFILE= of systemd, "
            "ulimits of a container), or start more workers",
            most, lanes, needed, needed,
        )  # fmt: skip
