"""Bridges and cluster connections of Artemis and HornetQ. Pure."""

import re
from collections.abc import Iterator
from typing import Any, Final
from xml.etree.ElementTree import Element

from app.commands.init.address_settings import AddressSettings
from app.commands.init.broker_xml import BrokerFile, clean, connectors, text_of
from app.commands.init.draft import Table
from app.commands.init.remarks import Remarks
from ringfence_kafka.protocol import wire_names

_PORT: Final = 9092
_EQUAL: Final = re.compile(r"\s*([\w.-]+)\s*=\s*('(?:[^']|'')*')\s*")
_ONE_OF: Final = re.compile(
    r"\s*([\w.-]+)\s+IN\s*\(\s*('(?:[^']|'')*'(?:\s*,\s*'(?:[^']|'')*')*)\s*\)\s*", re.IGNORECASE
)
_TEXT: Final = re.compile(r"'((?:[^']|'')*)'")
_NO_FILTER: Final = "its filter is not of the form name = 'value' or name IN ('a', 'b'): without it the bridge forwards all messages"
_READ_OF_BRIDGE: Final = frozenset(
    {"queue-name", "forwarding-address", "filter", "use-duplicate-detection", "static-connectors"}
)
_READ_OF_CONNECTION: Final = frozenset(
    {
        "address",
        "connector-ref",
        "message-load-balancing",
        "forward-when-no-consumers",
        "max-hops",
        "static-connectors",
        "use-duplicate-detection",
    }
)


class Connections:
    """Tables for bridges and cluster connections of a broker."""

    def __init__(self, broker: BrokerFile, addresses: AddressSettings, remarks: Remarks) -> None:
        self._broker = broker
        self._addresses = addresses
        self._remarks = remarks

    def sources(self) -> list[str]:
        """Return the addresses that bridges read."""
        bridges = self._broker.root.iterfind("bridges/bridge")
        return [self._addresses.address_of(text_of(bridge, "queue-name")) for bridge in bridges]

    def bridges(self) -> Iterator[Table]:
        """Yield a table for each bridge."""
        for bridge in self._broker.root.iterfind("bridges/bridge"):
            name = bridge.get("name", "")
            source = self._addresses.address_of(text_of(bridge, "queue-name"))
            values: dict[str, Any] = {
                "name": re.sub(r"[^a-zA-Z0-9._-]", "-", name),
                "source_topic": wire_names.accepted_topic(source),
                "target_address": text_of(bridge, "forwarding-address") or source,
            }
            if text_of(bridge, "use-duplicate-detection") == "false":
                values["use_duplicate_detection"] = False
            wanted = _filter(bridge)
            self._remark(f"bridge {name}", bridge, _READ_OF_BRIDGE)
            yield Table(
                header="[[bridges]]",
                values=values | (wanted or {}),
                inner=[self._target(bridge)],
                fault=_NO_FILTER if wanted is None else "",
            )

    def _target(self, bridge: Element) -> Table:
        names = connectors(bridge)
        return Table(
            header="[bridges.target]",
            values={"bootstrap_servers": self._servers(names) or f"localhost:{_PORT}"},
            comments=[
                f"Correct this: it is the host of connector {', '.join(names) or '(none)'}, with Kafka's usual port."
            ],
        )

    def _servers(self, names: list[str]) -> str:
        hosts = dict.fromkeys(host for name in names for host in self._broker.hosts(name))
        return ",".join(f"[{host}]:{_PORT}" if ":" in host else f"{host}:{_PORT}" for host in hosts)

    def connections(self) -> Iterator[Table]:
        """Yield a table for each cluster connection."""
        for connection in self._broker.root.iterfind("cluster-connections/cluster-connection"):
            name = connection.get("name", "")
            balancing = text_of(connection, "message-load-balancing") or "ON_DEMAND"
            if balancing.startswith("OFF"):
                self._remarks.add(
                    f"cluster connection {name}", "it forwards nothing (message-load-balancing is OFF)"
                )
                continue
            if text_of(connection, "use-duplicate-detection") == "false":
                self._remarks.add(
                    f"use-duplicate-detection of {name}", "cluster connections always detect duplicates"
                )
            if text_of(connection, "max-hops") not in {"", "1"}:
                self._remarks.add(f"max-hops of {name}", 'load_balancing = "strict" forwards over one hop')
            self._remark(f"cluster connection {name}", connection, _READ_OF_CONNECTION)
            yield self._connection(name, connection)

    def _connection(self, name: str, connection: Element) -> Table:
        this = text_of(connection, "connector-ref")
        matches = [match.strip() for match in text_of(connection, "address").split(",")]
        if left_out := [match for match in matches if match.startswith("!")]:
            self._remarks.add(
                f"{', '.join(left_out)} of {name}", "addresses are selected by name or pattern, not excluded"
            )
        members = [Table(header="[[cluster_connections.members]]", values={"name": _member(this)})]
        members += [
            Table(
                header="[[cluster_connections.members]]",
                values={
                    "name": _member(other),
                    "bootstrap_servers": self._servers([other]) or f"localhost:{_PORT}",
                },
                comments=["Correct this: it is the host of the connector, with Kafka's usual port."],
            )
            for other in dict.fromkeys(connectors(connection))
            if other != this
        ]
        return Table(
            header="[[cluster_connections]]",
            values={
                "name": _member(name),
                "this": _member(this),
                "addresses": [
                    name
                    for match in matches
                    if not match.startswith("!")
                    for name in self._addresses.named(match)
                ],
                "load_balancing": "strict",
            },
            comments=[
                "Each group goes to one member, whether consumers are there or not, to address <address>.shared."
            ],
            inner=members,
        )

    def _remark(self, place: str, element: Element, known: frozenset[str]) -> None:
        for item in element:
            if item.tag not in known:
                self._remarks.add(f"{item.tag} ({place})", "")


def _filter(bridge: Element) -> dict[str, Any] | None:
    """Return the keys of a filter; None = it cannot be expressed."""
    found = bridge.find("filter")
    text = "" if found is None else clean(found.get("string"))
    if not text:
        return {}
    if (match := _EQUAL.fullmatch(text) or _ONE_OF.fullmatch(text)) is None:
        return None
    values = [value.replace("''", "'") for value in _TEXT.findall(match[2])]
    return {"filter_header": match[1], "filter_values": values}


def _member(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "-", name)[:60]
