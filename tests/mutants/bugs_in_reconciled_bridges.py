"""Bugs in what the reconciliation makes of bridges: what it would miss, and what it would name that is none."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_READ: Final = "reconcile/spark/hops.py"
_HOPS: Final = "reconcile/night/hops.py"
_BRIDGED: Final = "reconcile/anomalies/bridged.py"
_TESTS: Final = "tests/reconcile/test_hops.py"
_TWO_NIGHTS: Final = "tests/reconcile/test_planted_bridges.py::test_two_nights"

MUTANTS: Final = (
    Mutant(
        "night-malformed-hop-believed",
        "Whoever may write an input has the run believe that all below any offset is confirmed, though lanes refuse it.",
        (Patch(_READ, "(confirmed <= offset) & ", ""),),
        f"{_TESTS}::test_as_workers_read_them",
    ),
    Mutant(
        "night-ignored-ids-looked-at",
        "An ID that a bridge has not checked makes the next message of that ID a duplicate of it.",
        (
            Patch(
                _READ,
                'F.coalesce(there & ignored, F.lit(False)).alias("ids_ignored")',
                'F.lit(False).alias("ids_ignored")',
            ),
        ),
        f"{_TESTS}::test_as_workers_read_them",
    ),
    Mutant(
        "night-headers-left-unseen",
        "Headers of a bridge that a worker left on what it accepted are not seen, and the next bridge takes them for its own.",
        (Patch(_READ, ".isin(wire.HEADER_HOPS, *OF_BRIDGES)", ".isin(wire.HEADER_HOPS)"),),
        f"{_TESTS}::test_headers_that_are_left",
    ),
    Mutant(
        "night-floor-over-all-ways",
        "What is still on its way is called a duplicate because another input partition was told of it: a loss that nobody sees.",
        (Patch(_HOPS, 'WAY: Final = [*SOURCE, "partition"]', "WAY: Final = [*SOURCE]"),),
        f"{_TESTS}::test_another_partition",
    ),
    Mutant(
        "night-later-ones-confirm",
        "A record that was lost is called a duplicate of those after it.",
        (
            Patch(
                _HOPS,
                "rangeBetween(Window.unboundedPreceding, -1)",
                "rangeBetween(Window.unboundedPreceding, 9)",
            ),
        ),
        f"{_TESTS}::test_a_way",
    ),
    Mutant(
        "night-quarantined-hops-unknown",
        "What is sent again after it was refused counts as lost, and as right where a lane accepts it beside its quarantine.",
        (
            Patch(
                _HOPS,
                'F.col("kept") | (~F.col("waiting") & _on())',
                'F.col("kept") | (~F.col("waiting") & ~F.coalesce(F.col("whole") == QUARANTINED, F.lit(False)) & _on())',
            ),
        ),
        f"{_TESTS}::test_a_way",
        (f"{_TESTS}::test_refused",),
    ),
    Mutant(
        "night-cleared-hops-known",
        "After 'rings clear BRIDGE.<address>' what was lost is called a duplicate of what its lane had forgotten.",
        (Patch(_HOPS, "zip(_EPOCHS, (_of_hops, in_memory", "zip(_EPOCHS, (in_memory, in_memory"),),
        f"{_TESTS}::test_orders",
    ),
    Mutant(
        "night-floor-not-handed-on",
        "A resend of what an earlier run judged is called lost.",
        (
            Patch(
                _HOPS,
                "both = highest.unionByName(floors, allowMissingColumns=True)",
                "both = highest.unionByName(floors.limit(0), allowMissingColumns=True)",
            ),
        ),
        f"{_TESTS}::test_what_later_nights_have_to_know",
    ),
    Mutant(
        "night-floor-forgotten-as-a-ring",
        "A lane that forgot what was confirmed is excused by the size of its ring.",
        (
            Patch(
                _BRIDGED,
                'kept = below | (there & (F.col("above") < F.col("capacity")))',
                'kept = there & (F.col("above") < F.col("capacity"))',
            ),
        ),
        f"{_TESTS}::test_accepted_again",
    ),
    Mutant(
        "night-hops-not-written",
        "No later run knows what this one has seen: a resend of it is called lost.",
        (
            Patch(
                "reconcile/night/judge.py",
                'self.desk.write(self.desk.frames.named(hops.kept_on(followed, most)), "hops")',
                "hops.kept_on(followed, most)",
            ),
        ),
        _TWO_NIGHTS,
    ),
    Mutant(
        "night-hops-of-what-waits-not-handed-on",
        "What was on its way to its home lane when a run began is judged by the next one as if it came over no bridge.",
        (
            Patch(
                "reconcile/night/evidence.py",
                '"headers_digest", "hop_source", "hop_offset", "hop_confirmed", "passed_digest", "lane"',
                '"headers_digest", "passed_digest", "lane"',
            ),
        ),
        _TWO_NIGHTS,
    ),
    Mutant(
        "night-wrong-verdict-without-an-id",
        "A record without an ID that counts may be diverted for nothing, and nobody sees it.",
        (Patch("reconcile/anomalies/lost.py", '(~by_hop & (F.col("ids") == 0)) | ', ""),),
        f"{_TESTS}::test_diverted",
    ),
)
