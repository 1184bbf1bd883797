"""The progress of a trial: a line for each step, with its seconds."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class CheckError(AssertionError):
    """A result is not what it must be."""


def expect(holds: bool, what: str) -> None:
    if not holds:
        raise CheckError(what)


class Step:
    """A step under way."""

    def __init__(self) -> None:
        self.note = "ok"


@contextmanager
def step(title: str) -> Iterator[Step]:
    made = Step()
    began = time.monotonic()
    try:
        yield made
    except BaseException:
        print(f"{time.monotonic() - began:7.1f} s  {title}: FAILED", flush=True)
        raise
    print(f"{time.monotonic() - began:7.1f} s  {title}: {made.note}", flush=True)
