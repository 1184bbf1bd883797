"""Faults of a broker's data: an old copy put back."""

import shutil
from pathlib import Path

from app.embedded.broker import EmbeddedBroker
from app.embedded.server_files import DATA


class OldCopy:
    """The broker continues with an old copy of its folder, for which :meth:`take` comes first: all logs lose the later records."""

    def __init__(self, broker: EmbeddedBroker, copy: Path) -> None:
        self.name = "old copy of the broker's data"
        self.struck = 0
        self._broker = broker
        self._data = broker.directory / DATA
        self._copy = copy

    def take(self) -> None:
        self._broker.stop()
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.copytree(self._data, self._copy)
        self._broker.start()

    def strike(self) -> None:
        assert self._copy.is_dir(), "take() comes first"
        self._broker.kill()
        before = _bytes(self._data, self._folders())
        shutil.rmtree(self._data)
        shutil.copytree(self._copy, self._data)
        lost = before - _bytes(self._data, self._folders())
        self._broker.start()
        self.struck += lost > 0

    def heal(self) -> None:
        if not self._broker.running:
            self._broker.start()

    def _folders(self) -> list[str]:
        return [path.name for path in sorted(self._copy.iterdir()) if path.is_dir()]


def _bytes(data: Path, folders: list[str]) -> int:
    return sum(log.stat().st_size for name in folders for log in (data / name).glob("*.log"))
