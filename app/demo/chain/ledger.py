"""Handler between ``billing`` and ``ledger``: numbers the entries of each account."""

import json

from ringfence_client import Message


async def handle(message: Message) -> None:
    """Send an entry. An account's state is its number of entries; a line without one has no state."""
    number = None
    if message.group is not None:
        number = int(message.state or 0) + 1
        message.state = str(number)
    entry = json.loads(message.value or b"{}") | {"entry": number}
    await message.send("ledger", json.dumps(entry), key=message.group)
