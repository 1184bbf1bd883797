"""A drawing made small: of matplotlib's SVG only shapes, text and where they stand are kept. Pure.

Colours, lines and letters are the page's style sheet's, by class name: so they follow its scheme, and the same drawing is
right on paper and in the dark. There are no identifiers, so a page may hold any number of drawings.
"""

import re
from html import escape
from typing import Final
from xml.etree import ElementTree as ET

from reconcile.page.wording import visible

_SVG: Final = "{http://www.w3.org/2000/svg}"
_TOKEN: Final = re.compile(r"[A-Za-z]|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_ANCHOR: Final = re.compile(r"text-anchor: (\w+)")
_GRID: Final = re.compile(r"line2d_\d+")
_OWN: Final = re.compile(r"(?:figure|axes|text|patch|xtick|ytick|line2d)_\d+|matplotlib\.axis_\d+")
GRID: Final = "grid"


def distilled(drawing: str, *, kind: str, title: str, description: str) -> str:
    """An ``svg`` element for a page.

    Args:
        drawing: What matplotlib wrote. The class of a shape or text is the gid of its artist.
        kind: Class of the whole.
        title: What is drawn.
        description: What a person sees in it, for whoever does not see it.

    Raises:
        ValueError: it holds a curve; nothing here draws one.
    """
    root = ET.fromstring(drawing)  # noqa: S314 - matplotlib's own
    parts: list[tuple[str, str]] = []
    texts: list[str] = []
    _walk(root, "", parts, texts)
    merged: list[tuple[str, str]] = []
    for name, path in parts:  # neighbours of one class are one path
        if merged and merged[-1][0] == name:
            merged[-1] = (name, merged[-1][1] + path)
        else:
            merged.append((name, path))
    shapes = "".join(f'<path class="{name}" d="{path}"/>' for name, path in merged)
    return (
        f'<svg class="plot {kind}" role="img" viewBox="{root.attrib["viewBox"]}" xmlns="http://www.w3.org/2000/svg">'
        f"<title>{escape(visible(title))}</title><desc>{escape(visible(description))}</desc>{shapes}{''.join(texts)}</svg>"
    )


def _walk(element: ET.Element, name: str, parts: list[tuple[str, str]], texts: list[str]) -> None:
    own = element.get("id")
    if own is not None:
        name = GRID if _GRID.fullmatch(own) else name if _OWN.fullmatch(own) else own
    if element.tag == f"{_SVG}path":
        parts.append((name, _path(element.attrib["d"])))
    elif element.tag == f"{_SVG}text":
        texts.append(_text(element, name))
    for each in element:
        _walk(each, name, parts, texts)


def _path(long: str) -> str:
    """Relative steps of tenths: rounded where they end, so that errors do not add up."""
    tokens = iter(_TOKEN.findall(long))
    x = y = 0
    written: list[tuple[str, list[int]]] = []
    for command in tokens:
        if command in {"z", "Z"}:
            written.append(("z", []))
            continue
        if command not in {"M", "L"}:
            raise ValueError(f"a path with {command}: only straight lines are kept")
        to_x, to_y = (round(float(next(tokens)) * 10) for _ in "xy")
        by_x, by_y = to_x - x, to_y - y
        if command == "M":
            written.append(("M", [to_x, to_y]))
        elif by_y == 0 and by_x * (written[-1][1][0] if written[-1][0] == "h" else 0) > 0:
            written[-1][1][0] += by_x  # the same way on
        elif by_x or by_y:
            written.append(("l", [by_x, by_y]) if by_x and by_y else ("h", [by_x]) if by_x else ("v", [by_y]))
        x, y = to_x, to_y
    return "".join(name + " ".join(map(_tenths, numbers)) for name, numbers in written)


def _tenths(number: int) -> str:
    whole, tenth = divmod(abs(number), 10)
    return ("-" if number < 0 else "") + (f"{whole or ''}.{tenth}" if tenth else f"{whole}")


def _text(element: ET.Element, name: str) -> str:
    x, y = (_tenths(round(float(element.attrib[each]) * 10)) for each in "xy")
    found = _ANCHOR.search(element.get("style", ""))
    anchor = f' text-anchor="{found[1]}"' if found and found[1] != "start" else ""
    kind = f' class="{name}"' if name else ""
    return f'<text x="{x}" y="{y}"{anchor}{kind}>{escape(element.text or "")}</text>'
