"""Bugs in what the reconciliation leaves out because it need not look: what it would miss, or call lost."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_HEADERS: Final = "tests/reconcile/test_headers.py"
_RESENDS: Final = "tests/reconcile/test_resends.py::test_only_what_repeats_is_compared"
_PLACES: Final = "tests/reconcile/test_places.py"
_REPEATED: Final = "reconcile/anomalies/repeated.py"
_HISTORIES: Final = "tests/reconcile/test_repeated_histories.py"
_QUICK: Final = "tests/unit/test_quick_start.py"

MUTANTS: Final = (
    Mutant(
        "run-waits-for-executors-for-ever",
        "No worker is large enough for an executor, and the command never ends.",
        (Patch("reconcile/executors/watch.py", "if waited >= self._timeout_s:", "if waited < 0:"),),
        "tests/unit/test_executor_watch.py::test_no_executor_comes",
    ),
    Mutant(
        "run-counts-planning-as-waiting",
        "A run of dynamic allocation is ended when it plans for two minutes without executors.",
        (Patch("reconcile/executors/watch.py", "if not self._cluster.waits():", "if False:"),),
        "tests/unit/test_executor_watch.py::test_nothing_is_due",
    ),
    Mutant(
        "long-steps-are-silent",
        "A step of many minutes reports nothing before its end.",
        (Patch("conf/progress.py", "if not name or now < self._next:", "if True:"),),
        "tests/unit/test_progress.py::test_a_long_step_goes_on",
    ),
    Mutant(
        "run-compares-one-route",
        "An ID that came by the forward topic and again directly is not compared: an ID accepted twice within its ring is called clean.",
        (Patch(_REPEATED, "F.last(F.when(~forwarded, row), ignorenulls=True).over(until),", ""),),
        f"{_HISTORIES}::test_known_verdicts",
    ),
    Mutant(
        "run-orders-by-outputs",
        "A planted copy behind an allowed repetition is compared with an acceptance of long ago alone.",
        (Patch(_REPEATED, '.orderBy("lane", "middle", *_CAME)', '.orderBy("out_partition", "out_offset")'),),
        f"{_HISTORIES}::test_known_verdicts",
    ),
    Mutant(
        "run-believes-an-order",
        "Where nothing tells which of two came first, one order is taken for granted: allowed repetitions are called forgotten.",
        (Patch(_REPEATED, "-apart).otherwise(F.abs(apart))", "-apart).otherwise(apart)"),),
        f"{_HISTORIES}::test_known_verdicts",
    ),
    Mutant(
        "night-strays-counted-as-seconds",
        "Outputs of nothing are looked for only where some input has two: a phantom by itself is never named.",
        (Patch("reconcile/night/suspects.py", "    STRAY: fates.STRAY,", "    STRAY: fates.SECOND,"),),
        "tests/reconcile/test_functions.py::test_what_is_looked_at",
    ),
    Mutant(
        "night-resends-not-among-what-recurs",
        "A resend and its original are two of one ID, and only the accepted one is counted: each resend is called lost.",
        (Patch("reconcile/night/recurring.py", "    if others is not None:", "    if others is None:"),),
        _RESENDS,
    ),
    Mutant(
        "night-only-accepted-twice-recur",
        "What is compared is only what was accepted several times: each resend that was dropped is called lost.",
        (Patch("reconcile/night/recurring.py", '"times > 1 and new = 1"', '"accepted > 1 and new = 1"'),),
        _RESENDS,
    ),
    Mutant(
        "night-digest-of-few-headers-passes-over-nulls",
        "A header that lost its value, while the next one got it, has the same digest: nobody sees it.",
        (
            Patch(
                "reconcile/spark/read.py",
                'F.when(counts, each["value"].isNull()),',
                "F.when(counts, F.lit(False)),",
            ),
        ),
        f"{_HEADERS}::test_the_digest_is_that_of_the_list",
    ),
    Mutant(
        "night-first-header-for-the-last",
        "Of repeated headers the first one counts, where Kafka, and workers, take the last.",
        (
            Patch(
                "reconcile/spark/envelopes.py",
                "F.array_position(F.reverse(names), ",
                "F.array_position(names, ",
            ),
        ),
        f"{_HEADERS}::test_the_last_of_a_name",
    ),
    Mutant(
        "night-place-with-more-behind-it",
        "A place with a fourth part counts as one: outputs that name nothing are matched with an input.",
        (Patch("reconcile/spark/read.py", ' & (rest == F.concat_ws("/", *texts))', ""),),
        f"{_HEADERS}::test_a_place",
    ),
    Mutant(
        "night-archive-of-another-java",
        "After Java was upgraded no run starts quickly any more, and the archive is never made again.",
        (Patch("reconcile/spark/quick_start.py", "looked_at = [self._java.resolve(), ", "looked_at = ["),),
        f"{_QUICK}::test_an_archive_is_of_its_jars_and_of_its_java",
    ),
    Mutant(
        "night-place-counts-the-record-itself",
        "What is accepted counts among what came before it: each resend is one further from its original than it is.",
        (Patch("reconcile/night/places.py", "~shiftleft(-1L,", "~shiftleft(-2L,"),),
        f"{_PLACES}::test_places_are_those_of_sorted_rows",
    ),
    Mutant(
        "night-place-of-what-was-judged-elsewhere",
        "What another lane judged counts where it stood: positions are too large, and a ring is called larger than it was.",
        (
            Patch(
                "reconcile/night/places.py",
                'F.expr(ONCE) & F.col("forward_offset").isNull()',
                "F.expr(ONCE)",
            ),
        ),
        f"{_PLACES}::test_what_was_judged_elsewhere_has_no_place_here",
    ),
    Mutant(
        "night-order-passed-over-where-a-record-came-early",
        "A stretch that begins within the one before counts as behind it: a group out of order is never named.",
        (
            Patch(
                "reconcile/anomalies/order.py",
                'F.col("former") >= F.col("first")',
                'F.col("former") > F.col("last")',
            ),
        ),
        f"{_PLACES}::test_no_broken_order_is_passed_over",
    ),
    Mutant(
        "night-group-in-two-partitions-passed-over",
        "Each output partition is in order by itself, and nobody looks whether a group is in two.",
        (
            Patch(
                "reconcile/anomalies/order.py",
                'F.min("out_partition") != F.max("out_partition")',
                'F.min("out_partition") > F.max("out_partition")',
            ),
        ),
        f"{_PLACES}::test_no_broken_order_is_passed_over",
    ),
    Mutant(
        "night-end-counted-with-all-of-its-block",
        "All that was accepted in the block counts as accepted before: a ring seems to have forgotten what it knew.",
        (Patch("reconcile/anomalies/originals.py", '.where(F.col("of") <= F.col("at"))', '.where("true")'),),
        "tests/reconcile/test_originals.py::test_what_the_ring_had_forgotten_is_no_original",
    ),
    Mutant(
        "night-plain-records-keep-no-group",
        "The group of plain records is read where their key is gone: order within groups is looked at for none.",
        (
            Patch(
                "reconcile/spark/read.py",
                'said = {"id": id_of(dialect), "group": group_of(dialect), **_digests()}',
                'said = {"id": id_of(dialect), "group": F.lit(None).cast("binary"), **_digests()}',
            ),
        ),
        f"{_HEADERS}::test_plain_records_are_read_as_others_are",
    ),
)
