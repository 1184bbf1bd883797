"""Bugs in what the reconciliation makes of transactions: what it would miss, and what it would name that is none."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_ENVELOPES: Final = "reconcile/spark/envelopes.py"
_UNITS: Final = "reconcile/night/units.py"
_ORIGINALS: Final = "reconcile/anomalies/originals.py"
_ENVELOPE_TESTS: Final = "tests/reconcile/test_envelopes.py"
_UNIT_TESTS: Final = "tests/reconcile/test_units.py"

MUTANTS: Final = (
    Mutant(
        "night-base64-as-text",
        "Each part with a value that is no text is called corrupted.",
        (
            Patch(
                _ENVELOPES,
                'F.when(written, F.try_to_binary(text, F.lit("base64")))',
                'F.when(written, text.cast("binary"))',
            ),
        ),
        f"{_ENVELOPE_TESTS}::test_parts",
        (f"{_ENVELOPE_TESTS}::test_as_workers_read_them",),
    ),
    Mutant(
        "night-any-address",
        "A part for an address that is not listed passes, so that nobody sees what a worker did with its rights.",
        (Patch(_ENVELOPES, ' & F.array_contains(allowed, part["address"])', ""),),
        f"{_ENVELOPE_TESTS}::test_what_cannot_be_read",
    ),
    Mutant(
        "night-long-strings-refused",
        "A transaction with a value of many megabytes is lost and a phantom, and was accepted in order.",
        (Patch(_ENVELOPES, "_ENVELOPE, _LENIENT)", "_ENVELOPE)"),),
        f"{_ENVELOPE_TESTS}::test_large_ones",
    ),
    Mutant(
        "night-any-form",
        "An envelope of a form that nobody reads is expanded.",
        (
            Patch(
                _ENVELOPES,
                "F.lit(bytearray(wire.TRANSACTION_FORM))",
                'last("headers", wire.HEADER_TRANSACTION)',
            ),
        ),
        f"{_ENVELOPE_TESTS}::test_what_cannot_be_read",
    ),
    Mutant(
        "night-missing-parts-lost-besides",
        "Each missing part of a torn transaction is one more loss.",
        (
            Patch(
                "reconcile/anomalies/lost.py",
                "has_input and part_number = 0 and fate is null",
                "has_input and fate is null",
            ),
        ),
        f"{_UNIT_TESTS}::test_torn",
    ),
    Mutant(
        "night-torn-is-whole",
        "A transaction of which half is missing passes, as something of it came out.",
        (
            Patch(
                "reconcile/anomalies/torn.py",
                'f"{FIRST} and part_number = 0 and came > 0 and came < parts"',
                'f"{FIRST} and part_number = 0 and came = 0 and came < parts"',
            ),
        ),
        f"{_UNIT_TESTS}::test_torn",
        (f"{_UNIT_TESTS}::test_many_parts_are_not_all_named",),
    ),
    Mutant(
        "night-every-id-must-be-known",
        "A resend under a new ID of which one part is known is called lost.",
        (Patch(_ORIGINALS, '.where("unknown = ids and first = 1")', '.where("first = 1")'),),
        f"{_UNIT_TESTS}::test_any_known_id_makes_a_duplicate",
    ),
    Mutant(
        "night-foreign-ids-mixed",
        "An ID of a part for another address is looked for among those of its own: its duplicate is called LOST.",
        (
            Patch(
                _ORIGINALS,
                'F.col("id_address").alias("part_address")',
                'F.col("address").alias("part_address")',
            ),
        ),
        f"{_UNIT_TESTS}::test_any_known_id_makes_a_duplicate",
    ),
    Mutant(
        "night-rings-mixed",
        "What was lost is excused by an ID that another address's lane of that number knows.",
        (
            Patch(
                _ORIGINALS,
                '"address", F.col("id_address")',
                'F.col("id_address").alias("address"), F.col("id_address")',
            ),
        ),
        f"{_UNIT_TESTS}::test_any_known_id_makes_a_duplicate",
    ),
    Mutant(
        "night-one-id-counts-twice",
        "An ID that two parts have takes two places in a ring, so that what was forgotten is called overrun.",
        (Patch(_UNITS, '"id": F.when(F.col("again") == 1, F.col("id")),', '"id": F.col("id"),'),),
        f"{_UNIT_TESTS}::test_ids",
    ),
    Mutant(
        "night-order-of-two-lanes",
        "Parts that two lanes judged are called reordered, though nobody promised their order.",
        (
            Patch(
                "reconcile/anomalies/order.py",
                '*(["lane"] if transactions else [])',
                "*([] if transactions else [])",
            ),
        ),
        f"{_UNIT_TESTS}::test_the_order_of_one_lane",
    ),
    Mutant(
        "night-order-of-parts",
        "Parts of one group that were accepted in another order than they were written pass.",
        (
            Patch(
                "reconcile/anomalies/order.py",
                "(offset = other_offset and part_number < other_part)",
                "(offset = other_offset and part_number < 0)",
            ),
        ),
        f"{_UNIT_TESTS}::test_the_order_of_one_lane",
    ),
    Mutant(
        "night-quarantine-of-the-envelope-alone",
        "A transaction that was accepted and is in quarantine passes.",
        (
            Patch(
                _UNITS,
                'F.when(accepted & one & F.col("fate").isNotNull(), F.array(F.lit(True), F.lit(False)))',
                'F.when(accepted & one & F.col("fate").isNotNull(), F.array(F.lit(True)))',
            ),
        ),
        f"{_UNIT_TESTS}::test_what_is_said_of_an_envelope_holds_for_its_parts",
    ),
    Mutant(
        "night-envelope-accepted-as-it-is",
        "A worker of an earlier version passes envelopes on as messages, and nobody hears of it.",
        (
            Patch(
                _UNITS,
                'f"{OF_UNITS} and part_number = 0 and fate = {ACCEPTED}"',
                'f"{OF_UNITS} and part_number = -1 and fate = {ACCEPTED}"',
            ),
        ),
        f"{_UNIT_TESTS}::test_an_envelope_that_was_accepted_as_it_is",
    ),
)
