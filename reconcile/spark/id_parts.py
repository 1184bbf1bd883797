"""Parts of a duplicate ID as columns: other code than the workers', with the same result."""

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from reconcile.spark import envelopes

_STRUCTURED: Final = "application/cloudevents+json"
_JSON: Final = {
    "allowNonNumericNumbers": "false",
    "allowSingleQuotes": "false",
    "maxStringLen": str(2**31 - 1),
}
_LONE: Final = (
    r"(?<!\\)(?:\\\\)*(?:\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2})"
)
"""Half of a surrogate pair after an even number of backslashes: no UTF-8 form, so no ID."""
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")
_NESTED: Final = r"\A[\[{]"
_NESTED_TYPES: Final = (MapType(StringType(), StringType()), ArrayType(StringType()))


def part(form: str) -> Column:
    """Return one part of an ID; null = missing or empty. A digest stands for a value."""
    if form == "key":
        return _filled(F.col("key"))
    if form == "value":
        return F.when(F.length("value") > 0, F.unhex(F.sha2("value", 256)))
    kind, _, name = form.partition(":")
    if kind == "value":
        return at_pointer(name)
    found = _filled(envelopes.last("headers", name))
    attribute = name.removeprefix("ce_")
    if attribute == name:
        return found
    content_type = F.lower(envelopes.last("headers", "content-type").cast("string"))
    pointer = "/" + attribute.replace("~", "~0").replace("/", "~1")
    return F.coalesce(found, F.when(content_type.startswith(_STRUCTURED), at_pointer(pointer)))


def composed(parts: Sequence[Column]) -> Column:
    """Return one ID from several parts, each after its length in four bytes; null = a part is missing."""
    return F.concat(*(F.concat(F.unhex(F.lpad(F.hex(F.length(item)), 8, "0")), item) for item in parts))


def _filled(value: Column) -> Column:
    return F.when(F.length(value) > 0, value)


def at_pointer(pointer: str) -> Column:
    """Return the scalar at a JSON pointer (RFC 6901) as bytes; null = none, or invalid JSON."""
    _, *escaped = pointer.split("/")
    tokens = [token.replace("~1", "/").replace("~0", "~") for token in escaped]
    found = _leaf(tokens, StringType())
    # Spark reads an object or a list as a string with its text.
    nested = F.greatest(*(_leaf(tokens, kind).isNotNull() for kind in _NESTED_TYPES))
    is_nested = F.when(found.rlike(_NESTED), nested).otherwise(False)
    return _filled(F.when(~is_nested, found).cast("binary"))


def _leaf(tokens: Sequence[str], kind: DataType) -> Column:
    """Return the value at the end of a pointer, if it can have this type."""
    return F.coalesce(*_readings(tokens, kind))


def _readings(tokens: Sequence[str], kind: DataType) -> Iterator[Column]:
    """Yield a column for each way to read a pointer: a number may be an index in a list, or a name."""
    text = F.col("value").cast("string")
    lone = F.lower(text).contains("\\ud") & text.rlike(_LONE)
    # Append one more element and check the size, because Spark accepts text after a JSON value.
    listed = F.when(F.is_valid_utf8(text) & ~lone, F.concat(F.lit("["), text, F.lit(",null]")))
    for steps in itertools.product(*(_steps(token) for token in tokens)):
        schema = kind
        for step in reversed(steps):
            schema = ArrayType(schema) if isinstance(step, int) else StructType([StructField(step, schema)])
        read = F.from_json(listed, ArrayType(schema), _JSON)
        found = F.when(F.size(read) == 2, F.get(read, F.lit(0)))
        for step in steps:
            found = F.get(found, F.lit(step)) if isinstance(step, int) else found.getField(step)
        yield found


def _steps(token: str) -> list[str | int]:
    return [token, int(token)] if _INDEX.fullmatch(token) else [token]
