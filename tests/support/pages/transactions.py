"""The page on transactions, as its readers have it: programs, settings and the test vector are taken from it."""

import re
from typing import Final, NamedTuple

from tests.support.checkout import ROOT

TEXT: Final = (ROOT / "docs" / "transactions.md").read_text("utf-8")
KEY: Final = "acct-1"
HEADERS: Final = [("_RF_TX", "json/1"), ("_AMQ_DUPL_ID", "pay-4711")]


class Sent(NamedTuple):
    """What a program hands to its Kafka client."""

    topic: str
    key: str
    value: str
    headers: list[tuple[str, str]]


def blocks(language: str, text: str = TEXT) -> list[str]:
    """All of one language, in their order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def block(language: str, text: str = TEXT) -> str:
    """The only one of its language."""
    [found] = blocks(language, text)
    return found


def vector(text: str = TEXT) -> str:
    """The value of the envelope that all producers of the page write."""
    [found] = blocks("json", text.split("## The test vector")[1])
    return found.rstrip("\n")
