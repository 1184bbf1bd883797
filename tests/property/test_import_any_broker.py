"""``ringfence init --from`` makes a valid configuration of any broker's file."""

import tempfile
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, tostring

from hypothesis import given, settings
from hypothesis import strategies as st

from app.commands.init import create
from ringfence_kafka.config.load import load
from tests.property import examples

WORDS = st.sampled_from(
    ["a", "b", "a.b", "a.#", "a.*", "#", "*", "a/b", "", "DLQ", "x" * 201, "a.accepted", "ringfence-journal"]
)
NAMES = WORDS | st.text(
    st.characters(min_codepoint=32, max_codepoint=0x2030, exclude_categories=("Cs", "Cn")), max_size=8
)
VALUES = (
    st.sampled_from(["0", "-1", "5", "1000", "9" * 5_000, "1e999", "nan", "many", "true", "false", "STRICT"])
    | NAMES
)
KEYS = st.sampled_from(
    [
        "id-cache-size", "max-delivery-attempts", "redelivery-delay", "redelivery-delay-multiplier", "max-redelivery-delay",
        "redelivery-collision-avoidance-factor", "dead-letter-address", "expiry-address", "password", "other",
    ]
)  # fmt: skip
FILTERS = st.sampled_from(["", "a = 'b'", "a IN ('b', 'c''d')", "a > 5", "a = '"]) | NAMES


def _texts(parent: Element, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        SubElement(parent, name).text = text


@st.composite
def _brokers(draw: st.DrawFn) -> bytes:
    root = Element("configuration")
    core = SubElement(root, "core") if draw(st.booleans()) else root
    _texts(
        core, draw(st.dictionaries(st.sampled_from(["id-cache-size", "persist-id-cache", "name"]), VALUES))
    )
    for name in draw(st.lists(NAMES, max_size=4)):
        SubElement(SubElement(core, "addresses"), "address", name=name)
    settings = SubElement(core, "address-settings")
    for match in draw(st.lists(NAMES, max_size=4)):
        _texts(
            SubElement(settings, "address-setting", match=match),
            draw(st.dictionaries(KEYS, VALUES, max_size=4)),
        )
    connectors = SubElement(core, "connectors")
    for name in draw(st.lists(NAMES, max_size=3)):
        SubElement(connectors, "connector", name=name).text = draw(
            st.sampled_from(["tcp://h:1", "vm://0", ""]) | NAMES
        )
    for name in draw(st.lists(NAMES, max_size=3)):
        bridge = SubElement(SubElement(core, "bridges"), "bridge", name=name)
        keys = st.sampled_from(["queue-name", "forwarding-address", "use-duplicate-detection", "user"])
        _texts(bridge, draw(st.dictionaries(keys, VALUES)))
        SubElement(bridge, "filter", string=draw(FILTERS))
        _texts(SubElement(bridge, "static-connectors"), {"connector-ref": draw(NAMES)})
    for name in draw(st.lists(NAMES, max_size=2)):
        connection = SubElement(SubElement(core, "cluster-connections"), "cluster-connection", name=name)
        keys = st.sampled_from(["address", "connector-ref", "message-load-balancing", "max-hops"])
        _texts(connection, draw(st.dictionaries(keys, VALUES)))
        _texts(SubElement(connection, "static-connectors"), {"connector-ref": draw(NAMES)})
    return tostring(root)


@settings(max_examples=examples(100))
@given(_brokers())
def test_any_broker(broker: bytes) -> None:
    """The new file passes validation, whatever names and values the broker's file has."""
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder) / "broker.xml", Path(folder) / "ringfence.toml"
        source.write_bytes(broker)

        assert create.create_file((), None, source, output) == 0
        load(output, {})
