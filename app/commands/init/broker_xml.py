"""Reads the configuration of ActiveMQ Artemis (broker.xml) and of HornetQ (hornetq-configuration.xml).

The parser is that of the standard library. It stops at a document type declaration. Only there can entities
be declared, so none is expanded, and no other file or address is read.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers.expat import ExpatError, ParserCreate

from ringfence_kafka.errors import ConfigurationError

_PLACEHOLDER: Final = re.compile(r"\$\{[^:}]*:([^}]*)\}")
"""System property with a default, which replaces it here."""
_HOST: Final = re.compile(r"//(\[[^]]+\]|[^][:/?,;()\s]+)")
_NAMESPACE_END: Final = "}"


class BrokerFile:
    """Elements of a file, without namespaces."""

    def __init__(self, root: Element, product: str) -> None:
        core = root.find("core")
        self.root = root if core is None else core
        self.product = product

    def text(self, name: str) -> str:
        """Return the text of a broker-wide setting; empty = not set."""
        return text_of(self.root, name)

    def addresses(self) -> Iterator[tuple[str, str]]:
        """Yield each address with an empty queue, and with each of its queues."""
        for address in self.root.iterfind("addresses/address"):
            name = address.get("name", "")
            yield name, ""
            for queue in address.iterfind("*/queue"):
                yield name, queue.get("name", "")
        for queue in self.root.iterfind("queues/queue"):
            yield text_of(queue, "address") or queue.get("name", ""), queue.get("name", "")

    def address_settings(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield the match and the keys of each address setting."""
        for setting in self.root.iterfind("address-settings/address-setting"):
            yield setting.get("match", ""), {item.tag: clean(item.text) for item in setting}

    def hosts(self, connector: str) -> list[str]:
        """Return the hosts of a connector. An IPv6 address is without its brackets."""
        for item in self.root.iterfind("connectors/connector"):
            if item.get("name") == connector:
                given = [
                    param.get("value", "") for param in item.iterfind("param") if param.get("key") == "host"
                ]
                hosts = [clean(host) for host in given] or _HOST.findall(clean(item.text))
                return [host.strip("[]") for host in hosts]
        return []


def text_of(element: Element, name: str) -> str:
    """Return the text of an inner element; empty = absent."""
    return clean(element.findtext(name))


def clean(text: str | None) -> str:
    """Strip a text, and replace system properties by their defaults."""
    return _PLACEHOLDER.sub(r"\1", text or "").strip()


def connectors(element: Element) -> list[str]:
    """Return the names of the static connectors of a bridge or a cluster connection."""
    return [
        clean(item.text) or item.get("connector-name", "")
        for item in element.iterfind("static-connectors/connector-ref")
    ]


def read_broker_xml(path: Path) -> BrokerFile:
    """Read a file.

    Raises:
        ConfigurationError: The file is not readable, or not a broker's configuration.
    """
    builder, names = TreeBuilder(), list[str]()
    parser = ParserCreate(namespace_separator=_NAMESPACE_END)

    def refuse(*_declaration: object) -> None:
        raise ConfigurationError(
            f"{path}: has a document type declaration, which may read other files: remove the line <!DOCTYPE …>"
        )

    def start(name: str, attributes: dict[str, str]) -> None:
        names.append(name)
        builder.start(name.rpartition(_NAMESPACE_END)[2], attributes)

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = start
    parser.EndElementHandler = lambda name: builder.end(name.rpartition(_NAMESPACE_END)[2])
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(path.read_bytes(), True)
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror or error}: name a readable broker.xml") from error
    except (ExpatError, ValueError) as error:
        raise ConfigurationError(f"{path}: not XML: {error}: name a broker.xml") from error
    root = builder.close()
    if root.tag != "configuration":
        raise ConfigurationError(
            f"{path}: begins with <{root.tag}>, not with <configuration>: name a broker.xml of Artemis, or a "
            "hornetq-configuration.xml"
        )
    hornetq = "hornetq" in names[0] or root.find("core") is None
    return BrokerFile(root, "HornetQ" if hornetq else "Artemis")
