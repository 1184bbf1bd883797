"""What an address was judged by, as a night keeps it: the next one sees what was changed since. Pure.

Workers go by what the configuration said when they were started, so that a change in the file may or may not be in force.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from conf.settings import AddressSettings
from reconcile.nights import Night

_KEPT: Final = (
    "input_topic", "accepted_topic", "duplicates_topic", "quarantine_topic", "duplicates", "duplicate_id_headers",
    "duplicate_id_from", "group_header", "default_group", "id_max_age", "id_cache_size",
)  # fmt: skip
_SIZE: Final = "id_cache_size"


def kept(address: AddressSettings) -> dict[str, Any]:
    """What a night keeps of it, as JSON gives it back."""
    found = {name: getattr(address, name) for name in _KEPT}
    return {name: list(each) if isinstance(each, tuple) else each for name, each in found.items()}


def promised(address: AddressSettings, lanes: int, chain: Sequence[Night]) -> dict[int, int]:
    """Lane → the size that its ring has for certain, as long as the journal does not tell of it.

    A worker that opens a lane with another size says so, if the lane was ever written to. So without a word of the journal
    the size has not changed since its first ID: the smallest of those nights. Of a lane without IDs the last night tells.

    Args:
        address: As it is configured now.
        lanes: How many it has.
        chain: Nights before, the latest first.
    """
    sizes = [(night, _size(night, address.name)) for night in chain]
    return {
        lane: min(
            [
                address.id_cache_size,
                *(
                    size
                    for number, (night, size) in enumerate(sizes)
                    if size is not None and (number == 0 or night.accepted.get(address.name, {}).get(lane))
                ),
            ]
        )
        for lane in range(lanes)
    }


def _size(night: Night, address: str) -> int | None:
    """None = an earlier version did not keep it."""
    rules: Mapping[str, Any] = night.rules.get(address, {})
    return rules.get(_SIZE)
