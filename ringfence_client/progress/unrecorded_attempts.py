"""Attempts without a recorded outcome. Their process died, or their holder failed to write the outcome. Pure."""

import dataclasses
from collections.abc import Mapping

from ringfence_client.progress.progress_record import RELEASED, Progress


def find(progress: Progress) -> dict[int, int]:
    """Return the number of attempts without a recorded outcome, by offset."""
    failures = progress.failures
    found = {
        offset: count - (failures[offset].attempts if offset in failures else 0)
        for offset, count in progress.attempts.items()
    }
    return {offset: count for offset, count in found.items() if count > 0}


def survived(progress: Progress, before: Mapping[int, int]) -> Progress:
    """Return the progress of a holder whose process survived: attempts of its time ended, although no outcome was written.

    ``before``: attempts without an outcome from before its time, by offset.
    """
    counts = dict(progress.attempts)
    for offset, found in find(progress).items():
        counts[offset] -= found - min(found, before.get(offset, 0))
    attempts = {offset: count for offset, count in counts.items() if count > 0}
    return dataclasses.replace(progress, attempts=attempts, state=RELEASED)
