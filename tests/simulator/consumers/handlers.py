"""The handlers of a world of consumers, and what they did."""

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from ringfence_client import Message, Reject, Release, Retry
from ringfence_client.consumer.partition_task import Lost
from tests.simulator.loop import ProcessLoop

HANDLED: Final = "ok"
IN_VAIN: Final = "in vain"
"""Outcome of a message whose batch failed because of another one."""
BACK_S: Final = 0.5
"""Seconds after which a process that a message has killed is started again."""
FAILED_TIMES: Final = 1
"""How often a handler fails or releases a message that is meant for it; then it handles the message."""


@dataclass(eq=False, slots=True)
class Run:
    """A message in a handler."""

    life: ProcessLoop
    process: str
    token: int
    partition: int
    offset: int
    group: bytes | None
    number: bytes
    """Number of the message, as it was sent: unique, even among messages at the same offset."""
    task: str
    begin: float
    turn: int
    end: float | None = None
    outcome: str = ""
    batch: object = None
    """The same object for all messages of a batch; None = its handler had it alone."""
    first_of_batch: bool = True
    first_here: bool = True
    total: bytes = b""
    effects: object = None

    def __str__(self) -> str:
        end = "…" if self.end is None else f"{self.end:.4f} {self.outcome}"
        return (
            f"{self.partition}/{self.offset} in {self.process}, token {self.token}: {self.begin:.4f} to {end}"
        )


class Handling:
    """All runs of one world."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.lost: Lost | None = None

    def ended(self, life: ProcessLoop, now: float) -> None:
        for run in self.runs:
            if run.life is life and run.end is None:
                run.end, run.outcome = now, "died"

    def before(self, message: Message, run: Run) -> None:
        """Ask for something before the work."""

    async def after(self, message: Message, run: Run) -> None:
        """Ask for something after the work."""

    async def handle(self, message: Message) -> None:
        run = await self._handle(message)
        run.end = asyncio.get_running_loop().time()

    async def handle_several(self, messages: list[Message]) -> None:
        """Handle a batch. Its messages are finished together, or none of them is."""
        loop: Any = asyncio.get_running_loop()
        begin, outcome = loop.time(), "cancelled"
        batch = object() if len(messages) > 1 else None
        runs: list[Run] = []
        try:
            for number, message in enumerate(messages):
                runs.append(await self._handle(message, batch, number, begin))
            outcome = HANDLED if all(run.outcome == HANDLED for run in runs) else IN_VAIN
        except Exception:
            outcome = IN_VAIN
            raise
        finally:
            if loop.alive:
                for run in runs:
                    run.end = loop.time()
                    run.outcome = outcome if run.outcome == HANDLED else run.outcome

    async def _handle(
        self, message: Message, batch: object = None, number: int = 0, begin: float | None = None
    ) -> Run:
        """Return the run, which ended well; it is not over yet, as others of its batch follow. It began when its batch did."""
        loop: Any = asyncio.get_running_loop()
        seconds, outcome = (message.value or b"0 ok").decode().split()
        run = Run(
            loop, loop.process.name, message.fence, message.partition, message.offset, message.group,
            dict(message.headers)["t"] or b"", outcome, loop.time() if begin is None else begin,
            loop.steps, batch=batch, first_of_batch=not number,
        )  # fmt: skip
        before = sum(
            (item.partition, item.offset) == (run.partition, run.offset) and item.outcome == outcome
            for item in self.runs
        )
        self.runs.append(run)
        if loop.process.joining and run.first_of_batch:
            loop.process.rights.violations.append(f"MEANWHILE {run} begins while the group shares out")
        run.outcome, well = "cancelled", False
        try:
            self.before(message, run)
            if await _work(loop, float(seconds), stubborn=outcome == "stubborn"):
                if outcome == "kill":
                    await _die(loop)
                await self.after(message, run)
                run.outcome = HANDLED
                _end(outcome, before, run)
            else:
                run.outcome = "half-done"
            well = True
        finally:
            if loop.alive and not well:
                run.end = loop.time()
        return run


async def _work(loop: Any, seconds: float, *, stubborn: bool) -> bool:
    """Work for so long; return whether nothing was left out, as a stubborn handler does that is cancelled and continues."""
    until, whole = loop.time() + seconds, True
    while loop.time() < until:
        try:
            await asyncio.sleep(until - loop.time())
        except asyncio.CancelledError:
            if not stubborn or not loop.alive:
                raise
            whole = False
    return whole


async def _die(loop: Any) -> None:
    process = loop.process
    process.loops.after(0, process.kill)
    process.loops.after(BACK_S, process.start)
    await loop.create_future()


def _end(outcome: str, before: int, run: Run) -> None:
    ends: dict[str, Exception] = {"hopeless": ValueError(outcome), "reject": Reject(outcome)}
    if before < FAILED_TIMES:
        ends |= {"fail": ValueError(outcome), "release": Release(), "retry": Retry(outcome, 0.3)}
    if outcome in ends:
        run.outcome = outcome
        raise ends[outcome]
