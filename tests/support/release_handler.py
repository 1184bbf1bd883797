"""What the consumer of :mod:`tests.support.release` runs."""

import os
from pathlib import Path

from ringfence_client import Message


def handle(message: Message) -> None:
    """Write it down, unless its group is the one that fails."""
    group = (message.group or b"").decode()
    if group and group == os.environ["STUCK"]:
        raise RuntimeError("not yet")
    with Path(os.environ["HANDLED"]).open("a") as file:
        file.write(f"{message.source}\n")
