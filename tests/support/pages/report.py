"""A page as a browser reads it."""

import base64
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any, Final
from xml.etree import ElementTree as ET

from reconcile.page import document
from reconcile.page.report_data import AddressFigures, Figures, Finding, Ring
from tests.support.reconcile import figures

VOID: Final = {"meta", "br", "hr", "img", "input", "link"}
IMAGE: Final = re.compile(r'src="data:image/svg\+xml;base64,([^"]*)"')
PLAIN: Final = AddressFigures("orders", {}, figures.NO_RING, 1000)
RUN: Final = figures.run()
RENDERED: Final = document.render(RUN)
RING: Final = Ring(2000, 5900, 0.999, 15_072, 0, 7, 12, 1480, 61_440, 3914, 7 * 86_400_000)


class Read(HTMLParser):
    """Reads a page as a browser does: elements with attributes, text, headings; each tag closed in its order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.headings: list[int] = []
        self.commands: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag == "pre":
            self.commands.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] == ["style"]:
            return
        if self._open[-1:] == ["pre"]:
            self.commands[-1] += data
        self.text.append(data)

    @property
    def said(self) -> str:
        return " ".join("".join(self.text).split())

    def having(self, name: str) -> list[str]:
        return [value for _, attrs in self.elements if (value := attrs.get(name)) is not None]


def read(*addresses: AddressFigures, verdict: str = "clean", servers: str = "kafka:9092") -> Read:
    return Read(document.render(Figures("Night", "when", verdict, servers, addresses)))


def drawings(html: str) -> list[ET.Element]:
    return [ET.fromstring(base64.b64decode(found)) for found in IMAGE.findall(html)]  # noqa: S314 - our own


def parts(drawing: ET.Element, name: str, tag: str) -> list[ET.Element]:
    named = [element for element in drawing.iter() if element.get("id") == name]
    return [element for group in named for element in group.iter() if element.tag.endswith(f"}}{tag}")]


def found(topic: str = "orders", **changed: Any) -> Finding:
    made = Finding("LOST", topic, 3, 17, None, None, None, None, None, "id", "group", "why")
    return replace(made, **changed)
