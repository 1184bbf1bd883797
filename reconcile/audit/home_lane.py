"""Home lane of a record in Spark: a hash of bytes, modulo the number of partitions.

Executors do not run Python, so murmur2 is written in Spark's functions. A test compares it with
:mod:`reconcile.audit.partitioner`.
"""

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from reconcile.audit.partitioner import FACTOR, MASK, SEED


def home(data: Column, partitions: int, partitioner: str) -> Column:
    """Return the partition of a key; null if the key is null."""
    if partitions == 1:
        return F.when(data.isNotNull(), 0)
    hashed = F.crc32(data) if partitioner == "crc32" else murmur2(data).bitwiseAND(0x7FFFFFFF)
    return (hashed % partitions).cast("int")


def murmur2(data: Column) -> Column:
    """Compute :func:`reconcile.audit.partitioner.murmur2` in Spark.

    Each step stays below 2^63, because a word is below 2^32 and the factor below 2^31.
    """
    text, length = F.hex(data), F.length(data)
    count = F.shiftright(length, 2)
    numbers = F.when(count > 0, F.sequence(F.lit(0), count - 1)).otherwise(F.array().cast("array<int>"))
    words = F.transform(numbers, lambda at: _number(text.substr(at * 8 + 1, F.lit(8))))
    words = F.transform(F.transform(words, _swapped), _times)
    words = F.transform(words, lambda word: _times(word.bitwiseXOR(F.shiftright(word, 24))))
    rest = length.bitwiseAND(3)
    # Pad the last bytes with zeros to four, so that the same swap gives their little-endian number.
    tail = _swapped_text(F.rpad(text.substr(count * 8 + 1, rest * 2), 8, "0"))
    return F.aggregate(
        words,
        F.lit(SEED).bitwiseXOR(length.cast("bigint")),
        lambda found, word: _times(found).bitwiseXOR(word),
        lambda found: _let(
            _let(
                F.when(rest > 0, _times(found.bitwiseXOR(tail))).otherwise(found),
                lambda word: _times(word.bitwiseXOR(F.shiftright(word, 13))),
            ),
            lambda word: word.bitwiseXOR(F.shiftright(word, 15)),
        ),
    )


def _let(value: Column, body: Callable[[Column], Column]) -> Column:
    """Compute ``value`` once, and apply ``body`` to it."""
    return F.element_at(F.transform(F.array(value), body), 1)


def _times(value: Column) -> Column:
    return (value * F.lit(FACTOR)).bitwiseAND(F.lit(MASK))


def _number(digits: Column) -> Column:
    return F.conv(digits, 16, 10).cast("bigint")


def _swapped_text(digits: Column) -> Column:
    return _let(_number(digits), _swapped)


def _swapped(word: Column) -> Column:
    """Return the four bytes in reverse order."""
    low, second = word.bitwiseAND(F.lit(0xFF)), word.bitwiseAND(F.lit(0xFF00))
    third, high = F.shiftright(word, 8).bitwiseAND(F.lit(0xFF00)), F.shiftright(word, 24)
    return F.shiftleft(low, 24).bitwiseOR(F.shiftleft(second, 8)).bitwiseOR(third).bitwiseOR(high)
