"""Log lines about the offset at which a partition begins."""

import logging
from typing import Final

from ringfence_client.progress.lease import Lease
from ringfence_client.progress.progress_record import Progress
from ringfence_client.progress.resume_offset import Log, Resumption

log: Final = logging.getLogger("ringfence.consumer")


def log_beginning(lease: Lease, recorded: Progress | None, log_now: Log, found: Resumption) -> None:
    """Log the offset at which an acquired partition begins, if the last holder ended elsewhere."""
    before = log_now.committed if recorded is None else recorded.next
    wanted = log_now.committed if found.moved else before
    if found.recreated:
        log.warning(
            "%s: %s was deleted and created again: beginning at %s, %d; the progress of %s in the old "
            "topic is discarded",
            lease, lease.topic, "the offset that was set" if found.moved else "its start", found.progress.next, lease.group,
        )  # fmt: skip
    elif found.moved:
        log.warning(
            "%s: the offset of %s was moved from %d to %d: beginning there, and finished messages above it "
            "are handled again",
            lease, lease.group, before, log_now.committed,
        )  # fmt: skip
    if found.beyond:
        log.warning(
            "%s: somebody set the offset of %s to %s, but the log ends at %d: the offset is not followed, "
            "and reading continues at %d. To move it, stop all consumers of the group, and set an offset "
            "up to the end",
            lease, lease.group, log_now.committed, log_now.end, found.progress.next,
        )  # fmt: skip
    if recorded is None and log_now.committed is None and log_now.start:
        log.warning(
            "GAP: %s begins at %d, and %s has neither progress nor an offset there: up to %d messages were "
            "deleted before it could read them. For a new group this is normal. For another one publish "
            "them again, after 'ringfence rings clear', and set a longer retention.ms on %s",
            lease, log_now.start, lease.group, log_now.start, lease.topic,
        )  # fmt: skip
    if recorded is None and log_now.committed is not None:
        log.warning(
            "%s: %s has an offset there, %d, but no progress record. For a group that is new to Ringfence "
            "this is normal. Otherwise the record is lost: messages that were finished above the offset are "
            "handled again, and fencing tokens begin at 1",
            lease, lease.group, log_now.committed,
        )  # fmt: skip
    if found.lost_tail:
        log.warning(
            "%s ends at %d, but %s has finished it up to %d: it was recreated, or lost its last records; "
            "beginning at its start", lease, log_now.end, lease.group, wanted,
        )  # fmt: skip
    if found.gap:
        log.error(
            "GAP: %s begins at %d, but %s has finished it only up to %d: retention deleted the messages "
            "between",
            lease, log_now.start, lease.group, wanted,
        )  # fmt: skip
