"""Documents: what they link to is there, and every one is found from the index."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.generator import reference
from tests.support.checkout import ROOT, documents

LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def _text(path: Path) -> str:
    return FENCED.sub("", path.read_text("utf-8"))


def _anchors(path: Path) -> set[str]:
    """As GitHub makes them of headings, and those that are written out."""
    found = set(re.findall(r'<a id="([^"]+)">', _text(path)))
    for heading in re.findall(r"^#+ (.+)$", _text(path), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        number = 0
        while (name := f"{anchor}-{number}" if number else anchor) in found:
            number += 1
        found.add(name)
    return found


def _links(document: str) -> Iterator[tuple[str, Path, str]]:
    """Those that stay here: as written, the file, the anchor."""
    for target in LINK.findall(_text(ROOT / document)):
        if "://" not in target and not target.startswith("mailto:"):
            name, _, anchor = target.partition("#")
            yield target, (ROOT / document).parent / name if name else ROOT / document, anchor


@pytest.mark.parametrize("document", documents())
def test_links(document: str) -> None:
    """Each link leads to an existing file or folder, and to a heading in it."""
    broken = [
        target
        for target, path, anchor in _links(document)
        if not path.exists() or (anchor and anchor not in _anchors(path))
    ]

    assert broken == []


@pytest.mark.parametrize("file", reference.files(), ids=lambda file: file.name)
def test_generated(file: Path) -> None:
    """The command line, the configuration, its schema and the example of a plan are what ``make cli-docs`` writes."""
    assert file.read_text("utf-8") == reference.files()[file]
    assert "$ ringfence plan --rate" in reference.SIZING.read_text("utf-8")


def test_tests_that_a_page_names() -> None:
    page = (ROOT / "docs" / "jepsen.md").read_text("utf-8")
    named = re.findall(r"`((?:\w+/)?test_\w+\.py)(?:::(\w+))?`", page)

    assert named
    for file, function in named:
        (found,) = (ROOT / "tests").rglob(file)
        assert not function or f"def {function}(" in found.read_text("utf-8"), (file, function)


def test_each_page_is_found() -> None:
    """The index links to each page, and the navigation of the site names it once."""
    linked = {path.resolve() for _, path, _ in _links("docs/README.md")}
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    named = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)

    assert {page for page in pages if ROOT / "docs" / page not in linked} == {"README.md"}
    assert sorted(named) == sorted(pages | {"adr/README.md"})
