"""Chains: the accepted topic of one address is the input topic of the next. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ringfence_kafka.config.addresses import AddressSettings


def feeders(addresses: Iterable[AddressSettings]) -> dict[str, str]:
    """Return the address that writes the input topic of each chained address, by name."""
    known = list(addresses)
    writers = {item.accepted_topic: item.name for item in known}
    return {item.name: writers[item.input_topic] for item in known if item.input_topic in writers}


def feeder(address: AddressSettings, addresses: Iterable[AddressSettings]) -> AddressSettings | None:
    """Return the address whose accepted topic is this address's input topic, or None."""
    return next((item for item in addresses if item.accepted_topic == address.input_topic), None)


def upstream(name: str, addresses: Iterable[AddressSettings]) -> tuple[str, ...]:
    """Return the addresses whose messages reach an address through chains, the nearest first."""
    _, *found = _path(name, feeders(addresses))
    return tuple(found)


def chain_starts(addresses: Iterable[AddressSettings]) -> dict[str, str]:
    """Return the first address of the chain of each chained address, by name."""
    fed_by = feeders(addresses)
    return {name: list(_path(name, fed_by))[-1] for name in fed_by}


def upstream_first(addresses: Sequence[AddressSettings]) -> list[AddressSettings]:
    """Return the addresses in an order in which each one follows the address that feeds it."""
    by_name = {address.name: address for address in addresses}
    fed_by = feeders(addresses)
    found: dict[str, AddressSettings] = {}
    for address in addresses:
        for name in reversed(list(_path(address.name, fed_by))):
            found.setdefault(name, by_name[name])
    return list(found.values())


def feeding_cycle(addresses: Iterable[AddressSettings]) -> list[str]:
    """Return the names along a cycle of chained addresses, with the first one again at the end; empty if there is no cycle."""
    fed_by = feeders(addresses)
    for name in fed_by:
        *path, last = _path(name, fed_by)
        if last in fed_by:  # the walk ended at an address that it had visited
            path = [*path, last]
            return [fed_by[last], *reversed(path[path.index(fed_by[last]) :])]
    return []


def _path(name: str, fed_by: Mapping[str, str]) -> Iterator[str]:
    passed = {name}
    yield name
    while (following := fed_by.get(name)) is not None and following not in passed:
        passed.add(following)
        yield following
        name = following
