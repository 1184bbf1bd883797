"""Bugs in whose offsets are followed, and who is named."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_OFFSETS: Final = "ringfence_kafka/trusted_offsets.py"
_UNIT: Final = "tests/unit/test_trusted_offsets.py"
_TESTS: Final = "tests/integration/test_foreign_members.py"

MUTANTS: Final = (
    Mutant(
        "consumers-offsets-followed",
        "Handlers skip what a foreign consumer read while none of ours ran.",
        (Patch(_OFFSETS, "committed is None or committed.leader_epoch != NO_EPOCH", "committed is None"),),
        f"{_UNIT}::test_own_commits_have_no_epoch",
        also=(f"{_TESTS}::test_a_foreign_consumer_that_came_and_went[consumer]",),
    ),
    Mutant(
        "moves-among-members-followed",
        "Handlers skip what a foreign consumer read that names its offsets itself.",
        (Patch(_OFFSETS, "if joined and committed != at_joining:", "if False:"),),
        f"{_UNIT}::test_a_new_membership_is_a_new_beginning",
        also=(f"{_TESTS}::test_a_member_of_the_new_protocol_skips_nothing[named-offsets]",),
    ),
    Mutant(
        "membership-never-ends",
        "An operator's offset is not followed once a process has been a member of the group.",
        (
            Patch(
                "ringfence_kafka/group_watch.py",
                "if member_id == self._joined_as:",
                "if self._joined_as:",
            ),
        ),
        f"{_UNIT}::test_a_new_membership_is_a_new_beginning",
    ),
    Mutant(
        "classic-members-alone",
        "A member of KIP-848 is not named: DescribeGroups calls its group dead.",
        (
            Patch(
                "ringfence_kafka/foreign_members.py",
                "    members = await of_other_types(admin, group, coordinator)\n    return sorted(",
                "    members: list[OtherMember] = []\n    return sorted(",
            ),
        ),
        f"{_TESTS}::test_a_member_of_the_new_protocol_skips_nothing[position]",
    ),
    Mutant(
        "lanes-follow-anybody",
        "Messages that a foreign consumer read while no worker ran are never accepted.",
        (
            Patch(
                "agents/opening.py",
                "if noted is None or self._group_watch is None:",
                "if noted is None or self._group_watch:",
            ),
        ),
        f"{_TESTS}::test_a_foreign_consumer_while_no_worker_ran",
    ),
    Mutant(
        "bridges-follow-anybody",
        "A bridge leaves out what a foreign consumer read in its group, with a lag of 0.",
        (
            Patch(
                "agents/bridge/partitions.py",
                "        if not why:\n            return committed",
                "        if why is not None:\n            return committed",
            ),
        ),
        f"{_TESTS}::test_a_foreign_consumer_while_no_bridge_ran",
    ),
    Mutant(
        "impostors-get-partitions",
        "A member with the name of our assignor gets partitions, and handlers never see their messages.",
        (
            Patch(
                "ringfence_client/assignor.py",
                ' and is_ours(topic, each.user_data or b"")',
                "",
            ),
        ),
        f"{_TESTS}::test_a_member_with_the_name_of_our_assignor",
    ),
)
