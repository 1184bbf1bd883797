"""Numbered traffic through one lane, and the exact output that is due."""

from typing import Final

from tests.support import kafka
from tests.support.kafka import Sent
from tests.support.worker import WorkerProcess, wait_for

GROUPS: Final = 7
LIMIT_S: Final = 240.0


class Flow:
    """Messages sent to an address of one partition; each ID is due once, in order of its first arrival."""

    def __init__(self, bootstrap: str, app_id: str, address: str) -> None:
        self.bootstrap = bootstrap
        self.app_id = app_id
        self.address = address
        self.sent = 0
        self.due: list[bytes | None] = []

    def send(self, count: int) -> None:
        first, self.sent = self.sent, self.sent + count
        self.due += self.resend(first, self.sent)

    def resend(self, first: int, end: int) -> list[bytes]:
        ids = [b"%d" % index for index in range(first, end)]
        records = [
            Sent(id_, b"g%d" % (number % GROUPS), b"%d" % number) for number, id_ in enumerate(ids, first)
        ]
        kafka.send(self.bootstrap, self.address, records)
        return ids

    def settle(self, worker: WorkerProcess) -> list[bytes | None]:
        end = kafka.end_offsets(self.bootstrap, self.address)
        wait_for(
            lambda: max(0, *kafka.committed(self.bootstrap, self.app_id, self.address)) == end[0],
            lambda: (
                f"{kafka.committed(self.bootstrap, self.app_id, self.address)} of {end}\n"
                f"{worker.health()}\n{worker.log()[-20_000:]}"
            ),
            LIMIT_S,
        )
        return self.accepted()

    def send_and_settle(self, count: int, worker: WorkerProcess) -> None:
        self.send(count)
        self.settle(worker)

    def accepted(self) -> list[bytes | None]:
        return [item.id for item in kafka.read_all(self.bootstrap, f"{self.address}.accepted", 1)]


def wrong(accepted: list[bytes | None], due: list[bytes | None]) -> dict[str, int]:
    """Return the errors in the accepted IDs; all zero = exact, order included."""
    return {
        "lost": len(set(due) - set(accepted)),
        "doubled": len(accepted) - len(set(accepted)),
        "made up": len(set(accepted) - set(due)),
        "out of order": int(accepted != due and sorted(map(str, accepted)) == sorted(map(str, due))),
    }


EXACT: Final = {"lost": 0, "doubled": 0, "made up": 0, "out of order": 0}


def wait_reason(worker: WorkerProcess, lane: str, *texts: str) -> str:
    def reason() -> str:
        return str(worker.health()[1].get("lanes", {}).get(lane, {}).get("reason", ""))

    wait_for(
        lambda: worker.health()[0] == 503 and any(text in reason() for text in texts),
        lambda: f"{worker.health()}\n{worker.log()[-20_000:]}",
    )
    return reason()
