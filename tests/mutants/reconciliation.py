"""Bugs in the reconciliation run: what it finds, and what it excuses."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_FATES: Final = "reconcile/anomalies/finders/fates.py"
_ORDER: Final = "reconcile/anomalies/finders/order.py"
_UNITS_TESTS: Final = "tests/reconcile/finders/test_envelope_parts.py"

MUTANTS: Final = (
    Mutant(
        "advice-from-seconds",
        "A second of traffic recommends the ring that caught its resends: the first restart of a producer is too far apart for it.",
        Patch("reconcile/page/advice.py", "    if span_ms < SPAN_MIN_MS:\n        return None\n", ""),
        "tests/unit/reconcile/page/test_advice.py::test_less_than_an_hour_recommends_nothing",
        also=("tests/unit/reconcile/audit/test_result.py::test_less_than_an_hour_recommends_nothing",),
    ),
    Mutant(
        "run-compares-one-route",
        "An ID that came by the forward topic and again directly is not compared: an ID accepted twice within its ring is called clean.",
        Patch(
            "reconcile/anomalies/finders/repeated_ids.py",
            "F.last(F.when(~forwarded, row), ignorenulls=True).over(until),",
            "",
        ),
        "tests/reconcile/finders/test_repeated_histories.py::test_known_verdicts",
    ),
    Mutant(
        "run-counts-one-too-few-by-sequence-numbers",
        "Two acceptances of an ID in a lane of several partitions look nearer than they were: what is allowed is called a fault.",
        Patch("reconcile/anomalies/finders/ring_ranks.py", '") - F.col("low"))', '") - F.col("low") + 1)'),
        "tests/reconcile/finders/test_repeated.py::test_verdicts[all-sequence numbers count exactly]",
    ),
    Mutant(
        "run-strays-counted-as-seconds",
        "Outputs of nothing are looked for only where some input has two: a phantom by itself is never named.",
        Patch("reconcile/run/measures/candidates.py", "    fates.STRAY,\n", "    fates.SECOND,\n"),
        "tests/reconcile/finders/test_functions.py::test_what_is_looked_at",
    ),
    Mutant(
        "run-order-passed-over-where-a-record-came-early",
        "A stretch that begins within the one before counts as behind it: a group out of order is never named.",
        Patch(_ORDER, 'F.col("former") >= F.col("first")', 'F.col("former") > F.col("last")'),
        "tests/reconcile/finders/test_id_positions.py::test_no_broken_order_is_passed_over",
    ),
    Mutant(
        "run-floor-over-all-routes",
        "What is still on its way is called a duplicate because another input partition was told of it: a loss that nobody sees.",
        Patch(
            "reconcile/run/frames/hops.py",
            "partitionBy(*ROUTE, *_SINCE[name]))",
            "partitionBy(*SOURCE, *_SINCE[name]))",
        ),
        "tests/reconcile/finders/test_hops.py::test_followed[all-another partition]",
    ),
    Mutant(
        "run-ends-at-expired-offsets",
        "A partition whose committed offset is gone is not judged, though its lane has judged it: what is doubled there is called clean.",
        Patch("reconcile/cluster/survey.py", "max(found[place] or 0, offset)", "found[place]"),
        "tests/unit/reconcile/cluster/test_survey.py::test_a_lane_counts_even_if_its_offset_is_gone",
    ),
    Mutant(
        "run-torn-is-whole",
        "A transaction of which half is missing passes, as something of it came out.",
        Patch("reconcile/anomalies/finders/lost_inputs.py", "= 0 and came > 0", "= 0 and came = 0"),
        f"{_UNITS_TESTS}::test_torn",
        also=(f"{_UNITS_TESTS}::test_many_parts_are_not_all_named",),
    ),
    Mutant(
        "run-second-output-passed",
        "An input that was accepted twice is called clean.",
        Patch(_FATES, '"has_input and nth = 2"', '"has_input and nth = 4"'),
        "tests/reconcile/finders/test_functions.py::test_fates",
    ),
    Mutant(
        "run-changed-value-passed",
        "An accepted record with another value than its input is called clean.",
        Patch(_FATES, '("key", "value", "headers",', '("key", "headers",'),
        "tests/reconcile/finders/test_functions.py::test_fates",
    ),
    Mutant(
        "run-output-from-before-the-first-run-passed",
        "Nobody knows the fate of an input that is older than all evidence, and the run does not say so.",
        Patch(_FATES, "offset < origin and begin > origin", "offset < origin and begin < origin"),
        "tests/reconcile/finders/test_functions.py::test_fates",
    ),
    Mutant(
        "run-overrun-has-no-limit",
        "A ring that lets most duplicates through is called clean.",
        Patch(
            "reconcile/run/verdict/summary.py",
            ' or any(item["overrun_share"] > overrun_max for item in addresses.values())',
            "",
        ),
        "tests/unit/reconcile/run/history/test_cut.py::test_verdict",
    ),
    Mutant(
        "run-ring-holds-one-more",
        "An ID that the ring had to forget is called FORGOTTEN, and not OVERRUN.",
        Patch("reconcile/anomalies/finders/repeated_ids.py", '") >= F.col("capacity', '") > F.col("capacity'),
        "tests/reconcile/finders/test_repeated.py::test_verdicts[all-a ring of three holds an ID after two others]",
    ),
    Mutant(
        "run-two-homes-passed",
        "An ID that two lanes accepted is called clean.",
        Patch("reconcile/anomalies/finders/repeated_ids.py", '(F.col("homes") > 1)', '(F.col("homes") > 2)'),
        "tests/reconcile/finders/test_repeated.py::test_verdicts[all-another group in another lane is CROSS-LANE]",
    ),
    Mutant(
        "run-diverted-orphan-passed",
        "A message that was called a duplicate, and repeats nothing, is called clean.",
        Patch("reconcile/anomalies/finders/lost_inputs.py", '("fate").isin(*REPEATS))', '("fate").isNull())'),
        "tests/reconcile/finders/test_originals.py::test_originals[all-several]",
    ),
)
