"""Content of the page on transactions, settings and the test vector, and the programs in examples/producers."""

import re
from typing import Final, NamedTuple

from tests.support.checkout import ROOT

TEXT: Final = (ROOT / "docs" / "transactions.md").read_text("utf-8")
PROGRAMS: Final = {
    "python": "transfer.py",
    "java": "Transfer.java",
    "go": "transfer.go",
    "javascript": "transfer.js",
    "csharp": "Transfer.cs",
}
KEY: Final = "acct-1"
HEADERS: Final = [("_RF_TX", "json/1"), ("_AMQ_DUPL_ID", "pay-4711")]


class Sent(NamedTuple):
    """Record that a program gives to its Kafka client."""

    topic: str
    key: str
    value: str
    headers: list[tuple[str, str]]


def blocks(language: str, text: str = TEXT) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def block(language: str, text: str = TEXT) -> str:
    [found] = blocks(language, text)
    return found


def program(language: str) -> str:
    return (ROOT / "examples" / "producers" / PROGRAMS[language]).read_text("utf-8")


def vector(text: str = TEXT) -> str:
    [found] = blocks("json", text.split("## The test vector")[1])
    return found.rstrip("\n")
