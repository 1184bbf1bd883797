"""Log lines about the offset at which a partition begins."""

import logging

import pytest

from ringfence_client.progress.lease import Lease
from ringfence_client.progress.progress_record import Progress
from ringfence_client.progress.resume_offset import Log, log_beginning, resume

LEASE = Lease("billing", "orders.accepted", 0, "holder", "")


@pytest.mark.parametrize(
    ("recorded", "committed", "is_said"),
    [(None, 40, True), (None, None, False), (Progress(40, topic_id="A"), 40, False)],
    ids=["lost", "new", "there"],
)
def test_a_lost_progress_record(
    recorded: Progress | None, committed: int | None, is_said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """An offset alone says nothing of messages that were finished above it: they come again, and somebody must know."""
    log_now = Log("A", committed, 0, 500)

    with caplog.at_level(logging.WARNING, "ringfence.consumer"):
        log_beginning(LEASE, recorded, log_now, resume(recorded, log_now))

    assert ("no progress record" in caplog.text) == is_said
