"""JSON Schema of the configuration file, from the settings and the docstrings of their fields."""

import ast
import functools
import inspect
import itertools
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, Final

from ringfence_kafka.config.section import Section
from ringfence_kafka.config.settings import Settings

FIRST_RELEASE: Final = "0.1.0"
_DEFINITIONS: Final = "#/definitions/"


@functools.cache
def document() -> dict[str, Any]:
    """Return the schema in draft 7, which TOML editors support. ``x-unit`` and ``x-since`` are Ringfence's own."""
    found = Settings.model_json_schema(ref_template=f"{_DEFINITIONS}{{model}}")
    definitions = found.pop("$defs")
    for model in _sections(Section):
        schema = found if model is Settings else definitions[model.__name__]
        schema.pop("title", None)
        schema["description"] = _plain(model.__doc__ or "")
        sentences = _docstrings(model)
        for key, held in schema["properties"].items():
            schema["properties"][key] = _property(held, sentences.get(key, ""))
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Configuration of Ringfence"}
    return {**head, **found, "definitions": definitions}


def _sections(base: type[Section]) -> Iterator[type[Section]]:
    for model in base.__subclasses__():
        yield model
        yield from _sections(model)


def _property(schema: dict[str, Any], sentence: str) -> dict[str, Any]:
    """Return the schema of one key in the file. TOML has no null, so an optional key has no default."""
    schema.pop("title", None)
    if {"type": "null"} in (choices := schema.get("anyOf", [])):
        (schema,) = (choice for choice in choices if choice != {"type": "null"})
    return {"description": sentence, **schema, "x-since": schema.get("x-since", FIRST_RELEASE)}


def _docstrings(model: type[Section]) -> dict[str, str]:
    """Return the docstrings below the fields. Pydantic could collect them, but this would slow down the start of all programs."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if not issubclass(base, Section):
            continue
        parsed = ast.walk(ast.parse(textwrap.dedent(inspect.getsource(base))))
        declared = next(node for node in parsed if isinstance(node, ast.ClassDef))
        for one, next_one in itertools.pairwise(declared.body):
            match one, next_one:
                case (
                    ast.AnnAssign(target=ast.Name(id=field)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found[field] = _plain(text)
    return found


def _plain(text: str) -> str:
    return " ".join(text.replace("``", "`").split())


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the definition that a schema refers to, or the schema itself."""
    reference = schema.get("$ref", "")
    return document()["definitions"][reference.removeprefix(_DEFINITIONS)] if reference else schema


def at(location: Sequence[int | str]) -> dict[str, Any]:
    """Return the schema of a place in the settings, as in Pydantic's errors; empty = not known."""
    schema = document()
    for part in location:
        schema = resolved(schema)
        schema = (
            schema.get("items", {}) if isinstance(part, int) else schema.get("properties", {}).get(part, {})
        )
    return resolved(schema)


def range_of(schema: dict[str, Any]) -> str:
    """Return the numbers that a key takes: ``6 to 90``, ``0 or more``, ``more than 0, up to 1``; empty = all."""
    least, most, above = (schema.get(bound) for bound in ("minimum", "maximum", "exclusiveMinimum"))
    if above is not None:
        return f"more than {above:,}" + (f", up to {most:,}" if most is not None else "")
    if least is None:
        return ""
    return f"{least:,} to {most:,}" if most is not None else f"{least:,} or more"
