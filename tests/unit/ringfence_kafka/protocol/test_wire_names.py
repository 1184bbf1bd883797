"""Names that Ringfence keeps for itself."""

import pytest

from ringfence_kafka.protocol.wire_names import bridge_group, group_owner, repair_group, run_group


@pytest.mark.parametrize(
    ("group", "owner"),
    [
        ("app", "the workers (app.id)"),
        (repair_group("app"), "the redrive commands"),
        (run_group("app"), "the reconciliation run"),
        (bridge_group("app", "west"), "a bridge"),
        ("billing", ""),
        ("app-billing", ""),
    ],
)
def test_group_owner(group: str, owner: str) -> None:
    """A consumer in such a group would move the offsets of workers, of a bridge or of a run."""
    assert group_owner("app", group) == owner
