"""Faults of the folder of a worker's state: files lost, garbled, read-only, of another time; the disk full."""

import errno
import os
import random
import resource
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Final, Literal

from rocksdict import Options, Rdict

from tests.support.worker import WorkerProcess

DISK_MIB: Final = 64
RESERVE_BYTES: Final = 256 * 1024
"""Bytes that a process with a file size limit may still write to a file, such as its log."""

Damage = Literal["garble", "truncate", "remove"]


class _WhileDown:
    """A fault of the state folder of a worker, which is down meanwhile."""

    name = ""

    def __init__(self, worker: WorkerProcess, folder: Path) -> None:
        self.struck = 0
        self._worker = worker
        self._folder = folder

    def heal(self) -> None:
        _start(self._worker)


class DeletedState(_WhileDown):
    """The folder is deleted."""

    name = "state deleted"

    def strike(self) -> None:
        _stop(self._worker)
        assert any(self._folder.iterdir())
        shutil.rmtree(self._folder)
        self.struck += 1


class DamagedFiles(_WhileDown):
    """Files of RocksDB are overwritten with noise, cut short or removed."""

    def __init__(
        self,
        worker: WorkerProcess,
        folder: Path,
        pattern: str,
        generator: random.Random,
        damage: Damage = "garble",
    ) -> None:
        super().__init__(worker, folder)
        self.name = f"state files {pattern}: {damage}"
        self._pattern = pattern
        self._generator = generator
        self._damage = damage

    def strike(self) -> None:
        if self._pattern == "*.log":
            self._worker.kill()  # stopped in order, it leaves an empty log
        else:
            _stop(self._worker)
        for path in sorted(self._folder.glob(self._pattern)):
            self.struck += self._harm(path)

    def _harm(self, path: Path) -> bool:
        size = path.stat().st_size
        if not size:
            return False
        if self._damage == "remove":
            path.unlink()
        elif self._damage == "truncate":
            os.truncate(path, self._generator.randrange(size))
        else:
            with path.open("r+b") as file:
                for at in range(0, size, 512):
                    file.seek(at)
                    file.write(self._generator.randbytes(min(64, size - at)))
        return True


class FutureFormat(_WhileDown):
    """The state record is of a later version, which this one must not guess at."""

    name = "state of a later version"

    def strike(self) -> None:
        _stop(self._worker)
        files = Rdict(str(self._folder), options=Options(raw_mode=True))
        try:
            if b"m" in files:  # missing after damage that the worker has not repaired yet
                record = files[b"m"]
                assert isinstance(record, bytes)
                files[b"m"] = record.replace(rb"\"format\":1", rb"\"format\":9")
                self.struck += files[b"m"] != record
        finally:
            files.close()


class ReadOnlyState:
    """Nothing can be created in the folder: a read-only mount over it, if mounting is permitted; else a file in its place."""

    def __init__(self, folder: Path) -> None:
        self.name = "state read-only"
        self.struck = 0
        self._folder = folder
        self._mounted = False
        self._aside = folder.with_name(f"{folder.name}.aside")

    def strike(self) -> None:
        path = str(self._folder)
        self._mounted = _mount("--bind", path, path)
        if self._mounted:
            assert _mount("-o", "remount,ro,bind", path)
        else:
            self._folder.rename(self._aside)
            self._folder.touch()
        try:
            (self._folder / "probe").touch()
        except OSError:
            self.struck += 1

    def heal(self) -> None:
        if self._mounted:
            _unmount(self._folder)
            self._mounted = False
        elif self._aside.exists():
            self._folder.unlink()
            self._aside.rename(self._folder)


class FullDisk:
    """No room is left: a small disk of their own, filled, if mounting is permitted (until :meth:`close`); else files may not grow."""

    def __init__(self, worker: WorkerProcess, folder: Path) -> None:
        self.name = "disk full"
        self.struck = 0
        self._worker = worker
        self._folder = folder
        self._ballast = folder / "ballast"
        folder.mkdir(parents=True, exist_ok=True)
        self.mounted = _mount("-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(folder))

    def strike(self) -> None:
        if self.mounted:
            self.struck += _fill(self._ballast)
            return
        limit = self._worker.log_file.stat().st_size + RESERVE_BYTES
        _, hard = resource.prlimit(self._worker.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self._worker.pid, resource.RLIMIT_FSIZE, (limit, hard))
        self.struck += 1

    def heal(self) -> None:
        if self.mounted:
            self._ballast.unlink(missing_ok=True)
        elif self._worker.running:
            _, hard = resource.prlimit(self._worker.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(self._worker.pid, resource.RLIMIT_FSIZE, (hard, hard))

    def close(self) -> None:
        self.heal()
        if self.mounted:
            _unmount(self._folder)
            self.mounted = False


def _fill(path: Path) -> bool:
    piece = bytes(64 * 1024)
    with path.open("wb", buffering=0) as file:
        while True:
            try:
                file.write(piece)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                if len(piece) == 1:
                    return True
                piece = piece[: len(piece) // 2]


def _mount(*arguments: str) -> bool:
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return False
    return subprocess.run(["mount", *arguments], check=False, capture_output=True).returncode == 0


def _unmount(folder: Path) -> None:
    subprocess.run(["umount", "--lazy", str(folder)], check=True, capture_output=True)


def _stop(worker: WorkerProcess) -> None:
    """Stop a worker in order: after a kill, the others would wait for its session to end."""
    if worker.running:
        code = worker.stop()
        # A process that has only begun to start is ended by the signal itself.
        assert code in {0, -signal.SIGTERM}, f"ended with {code}\n{worker.log()}"


def _start(worker: WorkerProcess) -> None:
    if not worker.running:
        worker.start()
