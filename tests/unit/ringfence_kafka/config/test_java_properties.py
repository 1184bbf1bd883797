"""Java properties, as java.util.Properties reads them."""

import pytest

from ringfence_kafka.config.properties import parse_java


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("# a comment\n! another\n\n  \t\n", {}),
        ("a = b c ", {"a": "b c "}),
        ("a b", {"a": "b"}),
        ("a", {"a": ""}),
        ("a=b=c:d", {"a": "b=c:d"}),
        ("a=one \\\n   two\nb=3", {"a": "one two", "b": "3"}),
        ("a=ends with one\\\\\nb=3", {"a": "ends with one\\", "b": "3"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a=\\u00e9\\t\\#", {"a": "é\t#"}),
        ("a=b\r\nc=#no comment\r\n", {"a": "b", "c": "#no comment"}),
    ],
)
def test_files(text: str, expected: dict[str, str]) -> None:
    """A properties file may have comments, separators, escapes and continued lines."""
    assert parse_java(text) == expected


def test_no_property() -> None:
    with pytest.raises(ValueError, match="line 3 is not a property"):
        parse_java("a=1\n\n=2\n")
