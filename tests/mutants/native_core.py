"""Bugs in the native core."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_PARSE_C: Final = "native/src/parse.c"
_PLAN_C: Final = "native/src/plan.c"
_NATIVE_PARSE_TESTS: Final = "tests/property/test_native_parse.py"
_NATIVE_PATH_TESTS: Final = "tests/property/test_native_path.py"
_SAME_BYTES: Final = f"{_NATIVE_PATH_TESTS}::test_same_bytes"
_LEFT: Final = f"{_NATIVE_PATH_TESTS}::test_not_its_own"
_SAME_RECORDS: Final = f"{_NATIVE_PARSE_TESTS}::test_same_records"
_DAMAGE: Final = f"{_NATIVE_PARSE_TESTS}::test_damage"

MUTANTS: Final = (
    Mutant(
        "core-ignores-the-age",
        "In the core an ID beyond id_cache_size is forgotten however young it is.",
        (
            Patch(
                _PLAN_C,
                "of_message <= of_record) return 1;",
                "of_message < of_record) return 1;\n    return 0;",
            ),
        ),
        _SAME_BYTES,
        native=True,
    ),
    Mutant(
        "core-opens-no-envelope-and-takes-it",
        "A transaction is accepted as one message, unread.",
        (
            Patch(
                _PLAN_C,
                "if (is_one_of(rules->special, rules->special_count, name, name_length)) return 0;",
                "",
            ),
        ),
        _LEFT,
        native=True,
    ),
    Mutant(
        "core-drops-observed-duplicates",
        "An address that is tried out in production loses messages that it was to let pass.",
        (
            Patch(
                "native/src/build.c",
                "scan->verdict == UNCHECKED || work->rules.verdict_header.bytes != NULL",
                "scan->verdict == UNCHECKED",
            ),
        ),
        _SAME_BYTES,
        native=True,
    ),
    Mutant(
        "core-keeps-forged-headers",
        "A producer names the source of its message.",
        (Patch("native/src/build.c", "        if (left_out) continue;\n", ""),),
        _SAME_BYTES,
        native=True,
    ),
    Mutant(
        "core-takes-an-empty-part",
        "A producer with an unset field loses all its messages but one for each value of the other parts.",
        (
            Patch(
                _PLAN_C,
                "        if (parts[i].length <= 0) return;\n",
                "        if (parts[i].length < 0) return;\n",
            ),
        ),
        _SAME_BYTES,
        native=True,
    ),
    Mutant(
        "core-reads-aborted-records",
        "What a producer has aborted is accepted.",
        (Patch(_PARSE_C, "if (attributes & TRANSACTIONAL && is_aborted(found, producer)) skip = 1;", ""),),
        _SAME_RECORDS,
        native=True,
    ),
    Mutant(
        "core-trusts-what-it-reads",
        "A damaged batch is taken for messages.",
        (
            Patch(
                _PARSE_C,
                "if (crc32c(batch + AT_ATTRIBUTES, length) != load_be32(batch + AT_CRC)) return 0;",
                "(void)length;",
            ),
        ),
        _DAMAGE,
        native=True,
    ),
)
