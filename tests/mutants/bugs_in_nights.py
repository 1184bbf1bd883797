"""Bugs in what the reconciliation leaves out because it need not look: what it would miss, or call lost."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_HEADERS: Final = "tests/reconcile/test_headers.py"
_RESENDS: Final = "tests/reconcile/test_resends.py::test_only_what_repeats_is_compared"
_QUICK: Final = "tests/unit/test_quick_start.py"

MUTANTS: Final = (
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
)
