"""The rules of an address, as one night hands them to the next: what was in force when its records were decided."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final

from conf.settings import AddressSettings
from reconcile.anomalies.name import Anomaly
from reconcile.cut import AddressCut

Rules = Mapping[str, Any]
"""By the key of the configuration, as JSON has it."""

DUPLICATES: Final = "duplicates"
CAPACITY: Final = "id_cache_size"
ACCEPTED_TOPIC: Final = "accepted_topic"

_JUDGED_BY: Final[tuple[tuple[tuple[str, ...], tuple[Anomaly, ...]], ...]] = (
    (
        ("duplicate_id_headers", "duplicate_id_from", "id_max_age"),
        (Anomaly.LOST, Anomaly.WRONG_VERDICT, Anomaly.FORGOTTEN, Anomaly.CROSS_LANE),
    ),
    (("group_header", "default_group"), (Anomaly.CORRUPTED, Anomaly.REORDERED, Anomaly.CROSS_LANE)),
    (
        ("input_topic", ACCEPTED_TOPIC, "duplicates_topic", "quarantine_topic"),
        (Anomaly.LOST, Anomaly.WRONG_VERDICT, Anomaly.PHANTOM),
    ),
)
"""What is no proof where these keys are others than on the night before."""
_OF_ANOTHER_INPUT: Final = (Anomaly.DOUBLED, Anomaly.PHANTOM, Anomaly.CORRUPTED)
"""Outputs of an input that was deleted name places of the one that has its name now."""
_KEYS: Final = (DUPLICATES, CAPACITY, *(key for keys, _ in _JUDGED_BY for key in keys))


def rules(address: AddressSettings) -> dict[str, Any]:
    """Those of now."""
    kept = address.model_dump(mode="json", include=set(_KEYS))
    if address.duplicates == "drop":
        del kept["duplicates_topic"]
    return kept


def changed(before: Rules | None, address: AddressSettings) -> frozenset[str]:
    """The keys that are others than on a night before; None = nobody knows of one."""
    if before is None:
        return frozenset()
    now = rules(address)
    return frozenset(key for key in _KEYS if key in before and key in now and before[key] != now[key])


def unsure(cut: AddressCut, changes: AbstractSet[str]) -> dict[Anomaly, str]:
    """The anomalies that this night cannot tell, and why: they are GAP.

    Args:
        cut: Of the address.
        changes: Keys that are others than on the night before.
    """
    found = {}
    if cut.journal:
        found[Anomaly.FORGOTTEN] = "the journal is not whole"
    if cut.input.recreated:
        found |= dict.fromkeys(_OF_ANOTHER_INPUT, "there was another input of that name")
    for keys, anomalies in _JUDGED_BY:
        if several := sorted(changes & set(keys)):
            found |= dict.fromkeys(
                anomalies,
                f"{', '.join(several)} changed, and what was decided before is not told from what came after",
            )
    return found
