"""Texts of errors."""

from ringfence_kafka.errors import named


def test_a_group_of_errors_names_its_first() -> None:
    """A handler with a TaskGroup fails with a group, whose own text does not tell why."""
    group = ExceptionGroup(
        "unhandled errors in a TaskGroup", [ExceptionGroup("inner", [ValueError("no stock")])]
    )

    assert named(group).startswith("ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception): ")
    assert named(group).endswith("ValueError: no stock")
