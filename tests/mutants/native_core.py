"""Bugs in the native core."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_PARSE_C: Final = "native/src/parse.c"
_NATIVE_PARSE_TESTS: Final = "tests/property/test_native_parse.py"

MUTANTS: Final = (
    Mutant(
        "core-keeps-forged-headers",
        "A producer names the source of its message.",
        Patch("native/src/build.c", "        if (left_out) continue;\n", ""),
        "tests/property/test_native_path.py::test_same_bytes",
        native=True,
    ),
    Mutant(
        "core-reads-aborted-records",
        "What a producer has aborted is accepted.",
        Patch(_PARSE_C, "if (attributes & TRANSACTIONAL && is_aborted(found, producer)) skip = 1;", ""),
        f"{_NATIVE_PARSE_TESTS}::test_same_records",
        native=True,
    ),
    Mutant(
        "core-trusts-what-it-reads",
        "A damaged batch is taken for messages.",
        Patch(
            _PARSE_C,
            "if (crc32c(batch + AT_ATTRIBUTES, length) != load_be32(batch + AT_CRC)) return 0;",
            "(void)length;",
        ),
        f"{_NATIVE_PARSE_TESTS}::test_damage",
        native=True,
    ),
)
