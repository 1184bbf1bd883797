"""Bugs in the growth of an address, and in what the night makes of it."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_GROW: Final = "app/verbs/grow.py"
_GROWN: Final = "tests/integration/test_grow.py::test_grow"

MUTANTS: Final = (
    Mutant(
        "heirs-know-nothing",
        "Groups that move are new to their lane: each resend of theirs is accepted once more.",
        (
            Patch(
                _GROW,
                "    entries: list[tuple[bytes, bytes | None]] = [*restore.occupants.items(), *restore.hops.items()]\n",
                "    entries: list[tuple[bytes, bytes | None]] = []\n",
            ),
        ),
        _GROWN,
    ),
    Mutant(
        "growth-beside-workers",
        "Lanes judge on while others are given what they know: what comes in between those do not know.",
        (
            Patch(
                _GROW,
                "if (state := await cluster.group_state()) not in NO_MEMBERS:",
                "if (state := await cluster.group_state()) is None:",
            ),
        ),
        _GROWN,
    ),
    Mutant(
        "growth-over-a-backlog",
        "What is left of a group that moves comes behind its later messages.",
        (Patch(_GROW, "    if not despite_backlog:\n", "    if False:\n"),),
        _GROWN,
    ),
    Mutant(
        "judged-in-a-former-topic",
        "An input that was deleted and created again counts as judged, and its messages come behind later ones of their groups.",
        (
            Patch(
                "app/verbs/unread.py",
                "    if meta.topic_ids.get(topic, topic_id) != topic_id:\n",
                "    if False:\n",
            ),
        ),
        "tests/unit/test_unread.py::test_begin_of_what_is_left",
    ),
    Mutant(
        "lanes-know-of-heirs-too-early",
        "A growth that does not come to its end is taken for finished, and heirs begin with nothing.",
        (
            Patch(
                _GROW,
                "    for lane in work.parents:\n        await _hand_on(",
                "    for lane in work.parents:\n"
                "        await _note(settings, address, cluster, lane, metas[lane], growth, say)\n"
                "        metas[lane] = _counted(address, metas[lane], growth)\n"
                "    for lane in work.parents:\n        await _hand_on(",
            ),
        ),
        _GROWN,
    ),
    Mutant(
        "dry-growth-grows",
        "Who asks what a growth would do has done it.",
        (Patch(_GROW, "        if dry_run:\n", "        if dry_run and obstacles:\n"),),
        _GROWN,
    ),
    Mutant(
        "night-heirs-unknown",
        "What an heir drops as a duplicate of what its lane's former owner accepted is called LOST.",
        (
            Patch(
                "reconcile/anomalies/nearest.py",
                '.when(kind == "heirs", handed_on)',
                '.when(kind == "heirs", False)',
            ),
        ),
        "tests/reconcile/test_originals.py::test_what_lanes_have_handed_on",
    ),
    Mutant(
        "night-forgets-what-heirs-know",
        "IDs are removed while heirs still drop resends of them, which are LOST then.",
        (
            Patch(
                "reconcile/night/kept_ids.py",
                "range(lane, now, then) if now > then > 0 else (lane,)",
                "(lane,)",
            ),
        ),
        "tests/unit/test_reconcile_cut.py::test_ids_are_kept_while_an_heir_may_know_them",
    ),
)
