"""Display of the running demo: a live panel on a terminal, elsewhere a line every few seconds."""

import threading
import time
from collections import deque
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

PLAIN_EVERY_S: Final = 2.0
QUIET_LIMIT_S: Final = 15.0
"""Time without output after which the display prints that the phase still runs, in seconds."""
REFRESHES_PER_S: Final = 8
SPEED_WINDOW_S: Final = 2.0
_BAR_WIDTH: Final = 60


class Display:
    """Shows the phase and the counts, without judging them."""

    def __init__(self, total: int, console: Console | None = None) -> None:
        """Take the number of messages (``total``), and a ``console``, by default standard output."""
        self.console: Final = console or Console()
        self._total = total
        self._began = time.monotonic()
        self._phases: list[tuple[str, float]] = []
        self._consumed = self._accepted = self._duplicates = self._sent = 0
        self._samples: deque[tuple[float, int]] = deque()
        self._printed = 0.0
        self._live: Live | None = None
        self._ended = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="display", daemon=True)

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live = Live(
                get_renderable=self._panel, console=self.console, refresh_per_second=REFRESHES_PER_S
            )
            self._live.start()
        self._ticker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        self._ended.set()
        self._ticker.join()

    def close(self) -> None:
        """Leave the last picture on the screen. Idempotent."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def phase(self, name: str) -> None:
        """Begin a new phase."""
        self._phases.append((name, time.monotonic()))
        if self._live is None:
            self._print(name)

    def say(self, text: str) -> None:
        """Print a remark that stays."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def hand_over(self, text: str) -> None:
        """Print a remark, and stop printing progress, because another program shows its own."""
        self._ended.set()
        self.say(text)

    def update(self, sent: int, consumed: int, accepted: int, duplicates: int) -> None:
        """Show new counts."""
        self._sent, self._consumed, self._accepted, self._duplicates = sent, consumed, accepted, duplicates
        now = time.monotonic()
        self._samples.append((now, consumed))
        while now - self._samples[0][0] > SPEED_WINDOW_S:
            self._samples.popleft()
        if self._live is None and now - self._printed >= PLAIN_EVERY_S:
            self._print(self._counts())

    @property
    def speed(self) -> float:
        """Consumed messages per second, over the last two seconds."""
        if len(self._samples) < 2:
            return 0.0
        (begin, first), (end, last) = self._samples[0], self._samples[-1]
        return (last - first) / (end - begin) if end > begin else 0.0

    def _counts(self) -> str:
        return (
            f"sent {self._sent:,}, consumed {self._consumed:,} of {self._total:,}: accepted {self._accepted:,}, "
            f"duplicates {self._duplicates:,}; {self.speed:,.0f} messages/s"
        )

    def _tick(self) -> None:
        """Print that the phase still runs, whenever there was no output for a while."""
        while not self._ended.wait(QUIET_LIMIT_S / 10):
            if self._live is None and self._phases and time.monotonic() - self._printed >= QUIET_LIMIT_S:
                name, began = self._phases[-1]
                self._print(f"{name}: {time.monotonic() - began:.0f} s so far")

    def _print(self, text: str) -> None:
        self._printed = time.monotonic()
        self.console.print(
            f"{self._printed - self._began:6.1f} s  {text}", highlight=False, markup=False, soft_wrap=True
        )

    def _panel(self) -> RenderableType:
        now = time.monotonic()
        phases = Table.grid(padding=(0, 2))
        for index, (name, began) in enumerate(self._phases):
            current = index == len(self._phases) - 1
            ended = now if current else self._phases[index + 1][1]
            phases.add_row(
                Text("●" if current else "✓", "yellow" if current else "green"),
                Text(name, "bold" if current else ""),
                Text(f"{ended - began:.1f} s", "dim"),
            )
        counts = Table.grid(padding=(0, 2))
        numbers = (self._sent, self._accepted, self._duplicates, round(self.speed))
        for name, number in zip(("sent", "accepted", "duplicates", "messages/s"), numbers, strict=True):
            counts.add_row(Text(name, "dim"), Text(f"{number:>9,}", "bold"))
        bar = ProgressBar(self._total, self._consumed, width=_BAR_WIDTH)
        return Group(
            phases, Text(), bar, Text(f"consumed {self._consumed:,} of {self._total:,}"), counts, Text()
        )
