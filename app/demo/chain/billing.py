"""Handler between ``orders`` and ``billing``: a line for each order, with the total of its account."""

import json

from ringfence_client import Message


async def handle(message: Message) -> None:
    """Send a line. The state of an account is its total so far; an order without an account has no state."""
    amount = total = _amount(message.value)
    if message.group is not None:
        total += int(message.state or 0)
        message.state = str(total)
    line = {"order": _order(message), "amount": amount, "total": total}
    await message.send("billing", json.dumps(line), key=message.group)


def _amount(value: bytes | None) -> int:
    """Return the amount of an order: in a JSON object, or a number alone; 0 without a value."""
    found = json.loads(value or b"0")
    return int(found["amount"] if isinstance(found, dict) else found)


def _order(message: Message) -> str:
    """Return the order's source, with the part number for a part of a transaction."""
    return message.source if message.part is None else f"{message.source}#{message.part.index}"
