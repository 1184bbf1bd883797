"""The handler of the fenced example, which waits at a gate before its effect: long enough to be late."""

import os
import time
from pathlib import Path

from examples import fenced
from ringfence_client import Message


def handle(message: Message) -> None:
    """Begin, wait until the file ``GATE`` is there, take effect; each noted in ``HANDLED_FILE``."""
    _note(f"begin {message.offset} {message.fence}")
    while not Path(os.environ["GATE"]).exists():
        time.sleep(0.01)
    try:
        fenced.handle(message)
    except fenced.LateHolderError as error:
        _note(f"refused {message.offset} {message.fence} {error}")
        raise
    _note(f"done {message.offset} {message.fence}")


def _note(line: str) -> None:
    with Path(os.environ["HANDLED_FILE"]).open("a") as file:
        file.write(f"{line}\n")
