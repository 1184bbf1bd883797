from app.commands.rings.hop_memory import _memory, _unless
from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.protocol.hop import Source
from tables import codec
from tables.codec import Route
from tables.restore import Restore
from tests.unit.tables.test_restore import Record

WAY = Route(Source("to-paris", "A" * 22, 3), 0)


def test_where_no_lane_looks() -> None:
    """Stored hops count as unknown, with the reason, if detection is off or the cache is in memory only."""
    for keys, why in (
        ({}, ""),
        ({"id_cache_size": 0}, ", or no lane looks: id_cache_size = 0"),
        ({"persist_id_cache": False}, ", or only workers' memory has it: persist_id_cache = false"),
    ):
        restore = Restore(None, 0, resident=True)
        restore.consume([Record(0, codec.hops_key(WAY), codec.hops_value(5, [7]))])
        address = AddressSettings(name="orders", **keys)

        assert bool(_memory(address, restore).routes) is not bool(keys)
        assert _unless(address) == f"{why}, or it was cleared"
