"""Scripts like those of :mod:`tests.simulator.conformance.transactions`, but made of single requests that arrive late or repeated."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol
from unittest.mock import ANY

NOT_IN_ONE: Final = "not in a transaction"
FENCED: Final = "fenced"
OUT_OF_ORDER: Final = "out of order"
WELL: Final = "well"


class Side(Protocol):
    """A cluster (real or simulated), a topic with one partition, and a transactional ID; ``implicit``: a write adds itself to the transaction."""

    async def initialise(self) -> int: ...

    async def add(self, epoch: int) -> Any: ...

    async def write(self, epoch: int, sequence: int, value: bytes, *, implicit: bool = False) -> Any: ...

    async def add_group(self, epoch: int) -> Any: ...

    async def commit_offset(self, epoch: int, offset: int, *, implicit: bool = False) -> Any: ...

    async def end(self, epoch: int, *, commit: bool, implicit: bool = False) -> Any: ...

    async def values(self) -> list[bytes]: ...

    async def committed(self) -> int | None: ...


Step = tuple[str, Any]
"""A request and its answer. ``+1``: with the epoch after that of the last initialisation; ``former``: with that of the one before."""


async def _ask(side: Side, epochs: list[int], words: list[str], implicit: bool) -> Any:
    match words:
        case ["initialise"]:
            epochs.append(await side.initialise())
            return WELL
        case ["former", *words]:
            return await _ask(side, epochs[:-1], words, implicit)
        case ["+1" | "+2" as more, *words]:
            return await _ask(side, [epochs[-1] + int(more)], words, implicit)
        case ["write", sequence, value]:
            return await side.write(epochs[-1], int(sequence), value.encode(), implicit=implicit)
        case ["offset", offset]:
            return await side.commit_offset(epochs[-1], int(offset), implicit=implicit)
    simple: dict[str, Callable[[], Awaitable[Any]]] = {
        "add": lambda: side.add(epochs[-1]),
        "add-group": lambda: side.add_group(epochs[-1]),
        "commit": lambda: side.end(epochs[-1], commit=True, implicit=implicit),
        "abort": lambda: side.end(epochs[-1], commit=False, implicit=implicit),
        "values": side.values,
        "committed": side.committed,
    }
    return await simple[words[0]]()


async def _play(steps: tuple[Step, ...], implicit: bool, side: Side) -> list[Any]:
    epochs: list[int] = []
    return [await _ask(side, epochs, request.split(), implicit) for request, _ in steps]


Script = Callable[[Side], Awaitable[list[Any]]]


def _script(*steps: Step, implicit: bool = False) -> tuple[Script, list[Any]]:
    steps = (("initialise", WELL), *steps)
    return partial(_play, steps, implicit), [answer for _, answer in steps]


# The second of two ends is answered only after the markers are written.
SCRIPTS: Final[Mapping[str, tuple[Script, list[Any]]]] = {
    # An end request that arrives in the next transaction ends it; the remaining writes are refused.
    "end comes in the next": _script(
        ("add", WELL), ("write 0 one", 0), ("commit", WELL), ("commit", WELL), ("abort", NOT_IN_ONE),
        ("add", WELL), ("write 1 two", 2), ("commit", WELL),  # the first transaction's
        ("commit", WELL), ("write 2 three", NOT_IN_ONE), ("values", [b"one", b"two"]),
    ),
    # Adding the partition again after the end begins an empty transaction.
    "partition is added once more": _script(
        ("add", WELL), ("write 0 one", 0), ("commit", WELL), ("add", WELL), ("abort", WELL), ("commit", NOT_IN_ONE),
        ("add-group", WELL), ("commit", WELL), ("values", [b"one"]),
    ),
    # An offset commit is refused between two transactions; within the next one it counts.
    "offset comes in the next": _script(
        ("add-group", WELL), ("offset 7", WELL), ("commit", ANY), ("commit", WELL), ("offset 7", NOT_IN_ONE),
        ("add-group", WELL), ("offset 9", WELL), ("offset 7", WELL),  # the first transaction's
        ("commit", WELL), ("add-group", WELL), ("committed", 7),
    ),
    # A repeated record is written once, whichever transaction it arrives in; if it comes first, the real first record is taken for a gap.
    "record comes once more": _script(
        ("add", WELL), ("write 0 one", 0), ("write 0 one", 0), ("commit", ANY), ("commit", WELL),
        ("add", WELL), ("write 1 two", 2), ("write 0 one", 0), ("commit", ANY), ("commit", WELL),
        ("add", WELL), ("write 1 two", 2), ("write 2 three", OUT_OF_ORDER), ("commit", WELL), ("values", [b"one", b"two"]),
    ),
    # A record between two transactions is refused, and so is the next transaction's first record, unless the epoch is another.
    "record comes between": _script(
        ("add", WELL), ("write 0 one", 0), ("commit", ANY), ("commit", WELL), ("write 0 one", NOT_IN_ONE),
        ("add", WELL), ("write 1 two", OUT_OF_ORDER), ("abort", WELL), ("initialise", WELL),
        ("add", WELL), ("write 0 two", 3), ("commit", WELL), ("values", [b"one", b"two"]),
    ),
    # A producer that continues with the earlier epoch is fenced, and its transaction is aborted.
    "initialised once more": _script(
        ("add", WELL), ("write 0 one", 0), ("initialise", WELL), ("former commit", FENCED), ("former add", FENCED),
        ("former write 1 two", FENCED), ("former add-group", FENCED), ("former offset 7", FENCED),
        ("add", WELL), ("write 0 three", 2), ("commit", WELL), ("values", [b"three"]),
    ),
    # A repeated end is answered until the next transaction begins; the opposite end is refused.
    "each end raises the epoch": _script(
        ("write 0 one", 0), ("commit", 1), ("commit", 1), ("abort", NOT_IN_ONE),
        ("+1 write 0 two", 2), ("commit", FENCED), ("abort", FENCED), ("+1 abort", 1), ("+1 abort", 1),
        ("+1 commit", NOT_IN_ONE), ("values", [b"one"]), implicit=True,
    ),
    # Late writes of the earlier epoch are refused, both after the end and in the next transaction.
    "nothing late is written": _script(
        ("write 0 one", 0), ("offset 7", WELL), ("commit", ANY), ("commit", 1), ("write 1 late", FENCED), ("offset 7", FENCED),
        ("+1 write 0 two", 2), ("write 0 one", FENCED), ("offset 7", FENCED), ("+1 write 0 two", 2), ("+1 offset 9", WELL),
        ("+1 commit", 1), ("+2 offset 11", WELL), ("committed", 9), ("+2 abort", 1), ("values", [b"one", b"two"]), implicit=True,
    ),
    # If nothing was written, an abort raises the epoch and a commit is refused.
    "nothing is ended": _script(
        ("write 0 one", 0), ("commit", ANY), ("commit", 1), ("+1 commit", NOT_IN_ONE), ("+1 abort", 1),
        ("+1 write 0 two", FENCED), ("+2 write 0 two", 2), ("+2 commit", 1), ("values", [b"one", b"two"]), implicit=True,
    ),
}  # fmt: skip
