"""What a night keeps of an address's rules, and what follows from them for the next: pure."""

from typing import Any

from conf.load import validate
from conf.settings import AddressSettings
from reconcile import rules
from reconcile.nights import Night


def _address(**keys: Any) -> AddressSettings:
    (found,) = validate({"addresses": [{"name": "a", **keys}]}).addresses
    return found


def _night(number: int, accepted: dict[int, int], **keys: Any) -> Night:
    night = Night(number, number - 1 or None, "2026-11-21", "clean", {}, {"a": accepted}, {}, {}, {})
    night.rules = {"a": rules.kept(_address(**keys))}
    return Night.from_json(night.to_json(), acknowledged=False)


def test_a_size_that_no_worker_was_started_with_promises_nothing() -> None:
    """Until the journal tells of it: lane 0 had IDs with another size, lane 1 had none; what was not kept says nothing."""
    small, large = _night(1, {0: 5}, id_cache_size=10), _night(2, {0: 5}, id_cache_size=20)
    old = Night(1, None, "2026-11-21", "clean", {}, {"a": {0: 5}}, {}, {}, {})

    assert rules.promised(_address(id_cache_size=20), 2, [small]) == {0: 10, 1: 10}
    assert rules.promised(_address(id_cache_size=20), 2, [large, small]) == {0: 10, 1: 20}
    assert rules.promised(_address(id_cache_size=5), 2, [large, small]) == {0: 5, 1: 5}
    assert rules.promised(_address(id_cache_size=20), 1, [old]) == {0: 20}
