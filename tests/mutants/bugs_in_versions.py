"""Bugs in the choice of a Kafka, and in the report of a cluster that lost a feature."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_JARS: Final = "tests/integration/test_jars.py"

MUTANTS: Final = (
    Mutant(
        "any-jar-runs",
        "A mirror serves other jars under Kafka's names, and they run.",
        (Patch("app/embedded/digests.py", "if expected.get(name) != digest", "if name not in expected"),),
        f"{_JARS}::test_another_jar_than_the_known_one",
    ),
    Mutant(
        "older-kafka-reads-all",
        "An older Kafka starts on the folder of a later one, and ends with a trace about metadata.",
        (
            Patch(
                "app/embedded/data_folder.py",
                "jars.order(version) < jars.order(formatted)",
                "version > formatted",
            ),
        ),
        "tests/integration/test_broker.py::test_folder_of_a_later_version",
    ),
    Mutant(
        "lowered-version-untold",
        "Every lane waits for ever after transaction.version was lowered, and the log says to look for a hanging transaction.",
        (
            Patch(
                "ringfence_kafka/transaction/feature.py",
                "    return level == 0 and supported >= requests.IMPLICIT",
                "    return level > 0 and supported >= requests.IMPLICIT",
            ),
        ),
        "tests/integration/test_lowered_transactions.py::test_lowered_to_0",
    ),
    Mutant(
        "lowered-version-told-by-lane",
        "A worker of a thousand lanes has a thousand findings for one cause.",
        (
            Patch(
                "app/status/findings.py",
                "        yield _Told(feature.LOWERED, feature.WAY_OUT, command, stands=True)",
                "        yield _Told(reason, feature.WAY_OUT, command, stands=True)",
            ),
        ),
        "tests/unit/test_status.py::test_transaction_version_lowered",
    ),
)
