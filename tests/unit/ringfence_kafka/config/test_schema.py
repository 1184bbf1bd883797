import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence_kafka.config import schema
from ringfence_kafka.config.load import validate
from ringfence_kafka.errors import ConfigurationError

ROOT = Path(__file__).parents[4]
FILES = [*(ROOT / "conf").glob("*.toml"), *(ROOT / "ops").rglob("ringfence.toml")]
SENTENCE = re.compile(r"[^.]+(\.\w[^.]*)*\.")
WORDS_MAX = 25
MEMBERS = [{"name": "a"}, {"name": "b", "bootstrap_servers": "b:1"}]
LEAST: dict[str, dict[str, Any]] = {
    "addresses": {"name": "orders"},
    "bridges": {"name": "there", "source_topic": "source", "target_address": "target"},
    "cluster_connections": {"name": "c", "this": "a", "addresses": ["orders"], "members": MEMBERS},
}
"""The least entry of each table of which there may be several."""


def _keys() -> list[tuple[str, str, dict[str, Any]]]:
    found = []
    for section, held in schema.document()["properties"].items():
        table = schema.resolved(held.get("items", held))
        found += [(section, key, item) for key, item in table["properties"].items()]
    return found


def _data(section: str, key: str, value: object) -> dict[str, Any]:
    if section not in LEAST:
        return {section: {key: value}}
    return {section: [LEAST[section] | {key: value}]}


def _is_valid(data: dict[str, Any]) -> bool:
    return next(jsonschema.Draft7Validator(schema.document()).iter_errors(data), None) is None


def test_is_a_schema() -> None:
    jsonschema.Draft7Validator.check_schema(schema.document())
    assert len(_keys()) > 80


@pytest.mark.parametrize(("section", "key", "held"), _keys())
def test_each_key_has_a_sentence(section: str, key: str, held: dict[str, Any]) -> None:
    """A key has one sentence of up to 25 words, a type, and the release that brought it."""
    sentence = held["description"]

    assert SENTENCE.fullmatch(sentence.replace("...", "")), sentence
    assert len(sentence.split()) <= WORDS_MAX, sentence
    assert {"type", "enum", "anyOf", "$ref"} & held.keys()
    assert held["x-since"] == "0.1.0"


@pytest.mark.parametrize(("section", "key", "held"), [item for item in _keys() if "default" in item[2]])
def test_each_default_is_valid(section: str, key: str, held: dict[str, Any]) -> None:
    """A default that somebody writes into a file changes nothing: schema and settings take it."""
    data = _data(section, key, held["default"])

    assert _is_valid(data)
    assert validate(data) == validate({} if section not in LEAST else {section: [LEAST[section]]})


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_shipped_files(file: Path) -> None:
    assert _is_valid(tomllib.loads(file.read_text("utf-8")))


@pytest.mark.parametrize(
    ("data", "valid"),
    [
        ({"app": {"session_timeout": "30 s"}}, False),
        ({"kafka": {"properties": {"retry.backoff.ms": 200, "a": True}}}, True),
        ({"addresses": [{"name": "or ders"}]}, False),
        ({"address_defaults": {"duplicate_id_from": ["key", "header:a"]}}, True),
        ({"bridges": [LEAST["bridges"] | {"target": {"bootstrap": "p:1"}}]}, False),
        ({"web": {}}, False),
    ],
)
def test_what_a_file_may_say(data: dict[str, Any], valid: bool) -> None:
    assert _is_valid(data) is valid


@settings(derandomize=True, deadline=None)
@given(st.data())
def test_schema_and_settings_agree_on_numbers(drawn: st.DataObject) -> None:
    """For every key a whole number passes the schema if and only if it passes validation."""
    section, key, held = drawn.draw(st.sampled_from([item for item in _keys() if "minimum" in item[2]]))
    bounds = [held["minimum"], held.get("maximum", held["minimum"])]
    near = st.sampled_from([bound + step for bound in bounds for step in (-1, 0, 1)])
    data = _data(section, key, drawn.draw(near | st.integers(0, 100)))
    if section == "addresses" and key in {"id_min_age", "id_cache_size_max"}:
        return  # one needs the other
    try:
        validate(data)
        taken = True
    except ConfigurationError:
        taken = False

    assert _is_valid(data) is taken
