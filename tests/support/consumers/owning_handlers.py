"""A handler module with a function `lost`."""

import json
from collections.abc import Collection

from ringfence_client import Message
from tests.support.handlers import append


async def handle(message: Message) -> None:
    append(json.dumps([(message.group or b"").decode(), message.first_here]))


def lost(groups: Collection[bytes]) -> None:
    append(json.dumps({"lost": sorted(group.decode() for group in groups)}))
