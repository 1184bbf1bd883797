"""Pages of docs/adr are short, have one shape, and stand in their index."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.support.checkout import ROOT

FOLDER: Final = ROOT / "docs" / "adr"
PAGES: Final = sorted(FOLDER.glob("[0-9]*.md"))
HEAD: Final = re.compile(
    r"# (\d+)\. (.+)\n\nStatus: (Accepted|Superseded by \[(\d{4})\]\((\4-[\w-]+\.md)\))\n\n## Context\n"
)
"""Number, title, status, and the successor's number and file."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem[:4])
def test_shape(page: Path) -> None:
    """A page has number, title, status line and three sections, in at most 350 words."""
    text = page.read_text("utf-8")
    head = HEAD.match(text)

    assert head, text[:200]
    assert f"{int(head[1]):04}" == page.name[:4]
    assert head[5] is None or (FOLDER / head[5]).exists()
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Context", "Decision", "Consequence"]
    assert len(text.split()) <= 350


def test_index() -> None:
    index = (FOLDER / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| \[(.+?)\]\((.+?)\) \| (.+?) \| .+ \|$", index, re.MULTILINE)
    heads = [(page, HEAD.match(page.read_text("utf-8"))) for page in PAGES]

    assert rows == [(f"{head[1]}. {head[2]}", page.name, head[3]) for page, head in heads if head]
