"""Journal of a producer, in a file that outlives its SIGKILL: a line before each send, and one for each outcome that is known."""

from pathlib import Path
from typing import BinaryIO, NamedTuple

from tests.harness.history import Outcome, Send

_NONE = b"-"
"""IDs and groups of plans never look like this."""


class Entry(NamedTuple):
    """One attempt to send."""

    token: bytes
    number: int
    id: bytes | None
    group: bytes | None
    outcome: Outcome
    step: int


class Journal:
    """Appends to the file of one producer."""

    def __init__(self, path: Path) -> None:
        _mend(path)
        self._file: BinaryIO = path.open("ab", buffering=2**16)

    def sending(
        self, token: bytes, step: int, number: int, identifier: bytes | None, group: bytes | None
    ) -> None:
        fields = (
            b"s", token, b"%d" % step, b"%d" % number,
            _NONE if identifier is None else identifier, _NONE if group is None else group,
        )  # fmt: skip
        self._file.write(b"\t".join(fields) + b"\n")

    def outcome(self, token: bytes, outcome: Outcome) -> None:
        self._file.write(b"o\t" + token + b"\t" + outcome.value.encode() + b"\n")

    def flush(self) -> None:
        self._file.flush()


def read(path: Path) -> list[Entry]:
    """Return all attempts of a producer, in order. A last line that a kill cut off is left out: nothing was done after it."""
    attempts: dict[bytes, Entry] = {}
    if not path.exists():
        return []
    with path.open("rb") as lines:
        for line in lines:
            if not line.endswith(b"\n"):
                break
            kind, token, *rest = line[:-1].split(b"\t")
            if kind == b"s":
                step, number, identifier, group = rest
                attempts[token] = Entry(
                    token, int(number), _value(identifier), _value(group), Outcome.UNKNOWN, int(step)
                )
            else:
                attempts[token] = attempts[token]._replace(outcome=Outcome(rest[0].decode()))
    return list(attempts.values())


def doubt(path: Path, mark: int) -> None:
    """Take back every outcome that was noted behind this many bytes."""
    _mend(path)
    lines = path.read_bytes()[mark:].split(b"\n")
    # The mark may lie in the middle of a line, which is then in doubt as well, if it was an outcome at all.
    tokens = [line.split(b"\t")[1] for line in lines if line.startswith(b"o\t")]
    with path.open("ab") as file:
        file.writelines(b"o\t" + token + b"\t" + Outcome.UNKNOWN.value.encode() + b"\n" for token in tokens)


def _mend(path: Path) -> None:
    if path.exists():
        end = path.read_bytes().rfind(b"\n") + 1
        with path.open("r+b") as file:
            file.truncate(end)


def sends(path: Path) -> list[Send]:
    return [Send(item.token, item.id, item.group, item.outcome) for item in read(path)]


def _value(field: bytes) -> bytes | None:
    return None if field == _NONE else field
