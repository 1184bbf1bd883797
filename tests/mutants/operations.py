"""Bugs in bounds of memory, in access, and in what operators see."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_FINDINGS: Final = "app/commands/status/findings.py"
_GUARD: Final = "ringfence_kafka/http/auth.py"
_WAITING: Final = "tests/unit/app/commands/status/test_waiting_for_a_person.py"

MUTANTS: Final = (
    Mutant(
        "health-tells-everything",
        "Whoever reaches the port learns lanes, topics and faults without the token.",
        Patch(_GUARD, "request.path == _ALIVE", "request.path in {_ALIVE, _READY}"),
        "tests/unit/ringfence_kafka/http/test_auth.py::test_without_the_token",
    ),
    Mutant(
        "any-page-drops-messages",
        "A web page that an operator looks at drops messages of a consumer that their browser reaches.",
        Patch(_GUARD, "if changes and", "if False and"),
        "tests/unit/ringfence_kafka/http/test_login.py::test_without_a_token_changes_are_checked_all_the_same",
    ),
    Mutant(
        "status-dead-letters-are-a-note",
        "Dead letters wait for a person, and a job that looks at the exit code of status never notices.",
        Patch(
            "app/commands/status/consumer_findings.py",
            "stands=True,\n    )\n\n\ndef left_letters",
            "stands=False,\n    )\n\n\ndef left_letters",
        ),
        f"{_WAITING}::test_open_dead_letters",
    ),
    Mutant(
        "status-run-not-clean-unseen",
        "A run named lost messages, and status says that all is ok.",
        Patch(_FINDINGS, "if not run.ok:", "if not run.ok and run.acknowledged:"),
        f"{_WAITING}::test_last_run",
    ),
    Mutant(
        "status-messages-without-an-id-unseen",
        "Producers set no ID, their resends are accepted again, and nothing says so.",
        Patch("app/commands/status/address_findings.py", "if not number:", "if number:"),
        f"{_WAITING}::test_messages_without_an_id",
    ),
    Mutant(
        "page-shows-values",
        "Contents of messages are on the page although nobody allowed that.",
        Patch("app/commands/status/page/letter.html", "{% if not values %}", "{% if false %}"),
        "tests/unit/app/worker/test_page_details.py::test_values_are_hidden",
    ),
    Mutant(
        "constant-id-unseen",
        "A producer sends one ID with all its messages, and nobody is told that they are lost.",
        Patch("agents/decision/frequent_ids.py", "[identifier] += weight", "[identifier] = weight"),
        "tests/unit/agents/decision/test_frequent_ids.py::test_among_many",
        also=("tests/unit/agents/decision/test_frequent_ids.py::test_more_than_a_tenth",),
    ),
)
