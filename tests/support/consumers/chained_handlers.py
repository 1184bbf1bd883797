"""Three handlers in a row, each with count and running total of its groups as their state. A value is ``NUMBER AMOUNT TOTAL…``."""

import os

from ringfence_client import Message

PREFIX = os.environ.get("CHAIN", "")


async def bill(message: Message) -> None:
    await _pass_on(message, f"{PREFIX}-billing")


async def book(message: Message) -> None:
    await _pass_on(message, f"{PREFIX}-ledger")


async def close(message: Message) -> None:
    await _pass_on(message, f"{PREFIX}-final")


async def _pass_on(message: Message, topic: str) -> None:
    number, amount, *totals = (message.value or b"").decode().split()
    count, total = map(int, (message.state or b"0 0").split())
    if count != int(number):
        totals.append(f"[{message.source} came as number {count}]")
    count, total = count + 1, total + int(amount)
    message.state = f"{count} {total}"
    await message.send(topic, " ".join([number, amount, *totals, str(total)]), key=message.group)
