"""Sentences of Markdown and Python files, with their lines."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

CALLS: Final = {
    "debug", "info", "warning", "error", "exception", "critical", "option", "argument", "echo", "print",
}  # fmt: skip
"""Calls whose literals people read."""
WORDS_MIN: Final = 4
_SKIPPED: Final = re.compile(r"^ *```.*?^ *```|^#+ [^\n]*|^\|[-| :]+\|$", re.DOTALL | re.MULTILINE)
"""Code blocks, headings and rules of tables."""
_NAME: Final = re.compile(r"``?[^`]+``?(?:_+)?|:\w+:`[^`]+`|!?\[([^\]]*)\]\([^)]*\)|https?://\S+")
_BLOCK: Final = re.compile(r"\n\s*\n|\n\s*(?:[-*|#>]|\d+\.)\s|\s\|\s|\n\s*\w+: ")
_END: Final = re.compile(r"(?<=;)\s+|(?<=[.!?:])\s+(?=[A-Z(\"'*_])")
"""A semicolon divides main clauses, so it ends a sentence here."""
_TRIPLE: Final = re.compile(r'^([^\n]*?)"""(.*?)"""', re.DOTALL | re.MULTILINE)
_COMMENT: Final = re.compile(r"^[ \t]*# (.+)$(?:\n[ \t]*# .+$)*", re.MULTILINE)


class Sentence(NamedTuple):
    """A sentence and its place."""

    path: Path
    line: int
    text: str


def of_markdown(path: Path) -> Iterator[Sentence]:
    """Yield the sentences outside code blocks and headings."""
    text = _SKIPPED.sub(lambda found: "\n" * found[0].count("\n"), path.read_text("utf-8"))
    yield from _split(path, 1, text)


def of_messages(path: Path) -> Iterator[Sentence]:
    """Yield the sentences that a program logs, prints or raises."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield from _literals(path, node.exc)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in CALLS:
            yield from _literals(path, node)


def of_code(path: Path) -> Iterator[Sentence]:
    """Yield the sentences of docstrings, and of comments on lines of their own."""
    source = path.read_text("utf-8")
    for found in _TRIPLE.finditer(source):
        if found[1].strip() in {"", "r"}:  # a statement of its own
            yield from _split(path, source.count("\n", 0, found.start()) + 1, found[2])
    for found in _COMMENT.finditer(source):
        text = re.sub(r"^[ \t]*# ", "", found[0], flags=re.MULTILINE)
        yield from _split(path, source.count("\n", 0, found.start()) + 1, text)


def _literals(path: Path, call: ast.Call) -> Iterator[Sentence]:
    """Join the parts of each literal; a value in it counts as one word."""
    for argument in [*call.args, *(keyword.value for keyword in call.keywords)]:
        if isinstance(argument, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "X" for part in argument.values]
            yield from _split(path, argument.lineno, "".join(map(str, parts)))
        elif isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            yield from _split(path, argument.lineno, argument.value)


def _split(path: Path, line: int, text: str) -> Iterator[Sentence]:
    """Divide a text into sentences, without names of code and targets of links."""
    begin = 0
    for border in [*_BLOCK.finditer(text), None]:
        end = len(text) if border is None else border.start()
        plain = _NAME.sub(lambda found: found[1] or "X", text[begin:end])
        at = line + text.count("\n", 0, begin + len(text[begin:end]) - len(text[begin:end].lstrip()))
        for sentence in _END.split(" ".join(plain.split())):
            if len(sentence.split()) >= WORDS_MIN:
                yield Sentence(path, at, sentence.strip("-|*# "))
        begin = len(text) if border is None else border.end()
