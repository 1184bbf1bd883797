"""Private parts of aiokafka are used in one package, those of Faust in one module. Both were checked with the installed versions."""

import ast
import functools
import importlib
import importlib.metadata
import re
from pathlib import Path
from typing import Final

import pytest

from ringfence_kafka.aiokafka_patches import CHECKED_VERSIONS

ROOT: Final = Path(__file__).parents[4]
ROOMS: Final = ("agents", "app", "conf", "native", "ringfence_client", "ringfence_kafka", "tables")
PACKAGE: Final = ROOT / "ringfence_kafka" / "aiokafka_patches"
FAUST: Final = ROOT / "app" / "worker" / "faust_parts.py"
"""Not in the package, because the client comes with the package and without Faust."""
DEFINED: Final = re.compile(r"(?:\bself\.|\bdef )(_[a-z]\w*)(?=\(| *=[^=]| *:)")
"""A private attribute that is set, or a private method."""
PRIVATE: Final = re.compile(r"\b_[a-z]\w*")
TUPLES: Final = frozenset({"_asdict", "_fields", "_make", "_replace"})
"""Public methods of Python's named tuples."""


def test_versions() -> None:
    """Read each module of the package beside the new source before this is changed."""
    assert {name: importlib.metadata.version(name) for name in CHECKED_VERSIONS} == CHECKED_VERSIONS


def test_nobody_else_uses_them() -> None:
    """Every other use goes through a function or a base class of the package or the module."""
    assert [use for path, text in _texts().items() for use in _uses(text, path)] == []


@pytest.mark.parametrize(
    "source",
    [
        "def f(consumer): consumer._coordinator.request_rejoin()",
        "class A:\n    def f(self, admin):\n        self._client = admin._client",
        "class T(driver.AIOKafkaConsumerThread):\n    def f(self):\n        return self._ensure_consumer()",
        "def f(fetcher): return getattr(fetcher, '_records')",
        "class C(AIOKafkaClient):\n    async def _get_conn(self):\n        return await super()._get_conn(1)",
    ],
)
def test_a_use_is_found(source: str) -> None:
    """Find attributes of their objects, inherited ones, names in strings, and calls of replaced methods."""
    assert _uses(source, Path("module.py"))


def _uses(source: str, path: Path) -> list[str]:
    if _foreign().isdisjoint(PRIVATE.findall(source)):
        return []
    found = [(node, *_private(node)) for node in ast.walk(ast.parse(source))]
    return [
        f"{path}:{getattr(node, 'lineno', 0)}: {name}"
        for node, name, is_self in found
        if name in _foreign() and not (is_self and name in _own())
    ]


def _private(node: ast.AST) -> tuple[str, bool]:
    match node:
        case ast.Attribute(attr=name, value=ast.Name(id="self" | "cls")):
            return name, True
        case ast.Attribute(attr=name):
            return name, False
        case ast.Call(func=ast.Name(id="getattr" | "setattr"), args=[_, ast.Constant(value=str(name)), *_]):
            return name, False
    return "", False


@functools.cache
def _texts() -> dict[Path, str]:
    paths = (path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    return {path: path.read_text("utf-8") for path in paths if PACKAGE not in path.parents and path != FAUST}


@functools.cache
def _own() -> frozenset[str]:
    found: set[str] = set()
    for node in (node for text in _texts().values() for node in ast.walk(ast.parse(text))):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case (
                ast.Name(id=name, ctx=ast.Store())
                | ast.Attribute(attr=name, value=ast.Name("self"), ctx=ast.Store())
            ):
                found.add(name)
    return frozenset(found)


@functools.cache
def _foreign() -> frozenset[str]:
    found: set[str] = set()
    for name in ("aiokafka", "faust", "mode"):
        folder = Path(importlib.import_module(name).__file__ or "").parent
        for path in folder.rglob("*.py"):
            found.update(DEFINED.findall(path.read_text("utf-8")))
    return frozenset(found) - TUPLES
