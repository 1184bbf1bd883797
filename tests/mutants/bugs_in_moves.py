"""Bugs in what keeps lanes going while workers come and go."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_STATIC: Final = "ringfence_kafka/static.py"

MUTANTS: Final = (
    Mutant(
        "heartbeats-without-the-name",
        "Two workers of one name take each other for ended sessions, and throw each other out for ever.",
        (
            Patch(
                _STATIC,
                "        if isinstance(request, HeartbeatRequest):\n",
                "        if isinstance(request, str):\n",
            ),
        ),
        "tests/unit/test_static.py::test_heartbeats_have_the_name",
        also=("tests/integration/test_worker.py::test_static_member_of_a_name_in_use",),
    ),
    Mutant(
        "old-assignment-for-new-addresses",
        "A static member comes back with an address more, and nobody is given its lanes.",
        (Patch(_STATIC, "set(each.metadata.subscription) == set(topics)", "True"),),
        "tests/unit/test_static.py::test_a_predecessor_with_other_topics_leaves",
        also=("tests/integration/test_worker.py::test_static_member_with_other_addresses",),
    ),
)
