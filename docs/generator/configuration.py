"""Generates docs/configuration.md from the JSON Schema of the configuration, for ``docs/generator/reference.py``."""

import json
from typing import Any, Final

from ringfence_kafka.config import schema

_HEAD: Final = """\
# Configuration

Made from the settings by `make cli-docs`. All programs read one TOML file: `--config FILE`, else the file that `RINGFENCE_CONFIG` names,
else `conf/ringfence.toml`. An unknown key, a wrong type or an impossible combination is an error. It names the key, its value and the correction.

```console
$ ringfence init orders payments --bootstrap-servers kafka-1:9092   # writes ringfence.toml
$ ringfence config check --config ringfence.toml                    # validates it without a broker
$ ringfence config show --config ringfence.toml                     # prints each value with its origin
```

- **Override.** `RINGFENCE_<SECTION>__<KEY>` in the environment overrides a key of a section, as in `RINGFENCE_APP__WEB_PORT=6067`. The options
  `--bootstrap-server`, `--command-config` and `-X` override `[kafka]`. Tables in double brackets can be set in the file only.
- **Durations.** A duration is a number in the unit of its key, or text: `"500ms"`, `"30s"`, `"5m"`, `"1h"`, `"7d"`, `"1h30m"`.
- **Names.** Names of addresses and topics have up to 200 letters, digits and the characters `. _ -`.
- **Secrets.** Secrets are not in the file. A key that ends with `_env` names the environment variable that holds one.
- **Editors.** The first line, `#:schema ./ringfence.schema.json`, gives completion, descriptions and errors to editors that know it, such as
  Visual Studio Code with *Even Better TOML*. `ringfence config schema` prints that file.
- **Artemis and HornetQ.** `ringfence init --from broker.xml` [imports a broker's configuration](#import-from-artemis-or-hornetq).

"""
_IMPORT: Final = """\
## Import from Artemis or HornetQ

`ringfence init --from broker.xml --output ringfence.toml` also reads `hornetq-configuration.xml`. It prints a list of all settings that have no
counterpart, and writes it into the file. A table that is not valid here is in the file as a comment, with the reason. A document type
declaration (DTD) is refused, so no entity is read. Passwords are not copied.

| there | here |
|---|---|
| addresses and queues | `[[addresses]]`, without those that are only dead-letter or expiry addresses |
| `address-setting match="#"`, other patterns | `[address_defaults]`, `[[addresses]]` with a pattern |
| `id-cache-size`, `persist-id-cache` | `id_cache_size`, `persist_id_cache`; `lanes = 1`, because a broker remembers the IDs of a whole address |
| `max-delivery-attempts`, `redelivery-delay`, `-multiplier`, `max-redelivery-delay`, `-collision-avoidance-factor` | options of `ringfence consume`, in a comment beside the address |
| `dead-letter-address` | `<address>.dlq`, which Ringfence names itself |
| bridge | `[[bridges]]`; with its filter, if that is `name = 'value'` or `name IN ('a', 'b')`, else behind `#` |
| cluster connection | `[[cluster_connections]]` with `load_balancing = "strict"` |
| connector | `bootstrap_servers` with its host and port 9092, which you correct |
"""
_SECTIONS: Final = {
    "[kafka]": ("KafkaSettings", ""),
    "[app]": ("AppSettings", ""),
    "[address_defaults]": ("AddressDefaults", ""),
    "[[addresses]]": ("AddressSettings", "AddressDefaults"),
    "[reconcile]": ("ReconcileSettings", ""),
    "[[bridges]]": ("BridgeSettings", ""),
    "[[cluster_connections]]": ("ConnectionSettings", ""),
    "[[cluster_connections.members]]": ("MemberSettings", "KafkaSettings"),
}
"""Section → its definition in the schema, and a definition whose keys the section's table leaves out."""
_COLUMNS: Final = "| key | type | default | unit | meaning | since |\n|---|---|---|---|---|---|\n"


def page() -> str:
    """Return the text of the page."""
    definitions = schema.document()["definitions"]
    parts = [_HEAD]
    for section, (name, listed) in _SECTIONS.items():
        elsewhere = definitions[listed]["properties"] if listed else {}
        required = definitions[name].get("required", ())
        rows = [
            _row(key, held, required=key in required)
            for key, held in definitions[name]["properties"].items()
            if key not in elsewhere
        ]
        parts.append(f"## `{section}`\n\n{definitions[name]['description']}\n\n{_COLUMNS}{''.join(rows)}\n")
    return "".join([*parts, _IMPORT])


def _row(key: str, held: dict[str, Any], *, required: bool) -> str:
    default = f"`{json.dumps(held['default'])}`" if "default" in held else "required" if required else ""
    cells = (f"`{key}`", _type(held), default, held.get("x-unit", ""), held["description"], held["x-since"])
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def _type(held: dict[str, Any]) -> str:
    """Return type and range in words."""
    held = {**schema.resolved(held), **held}
    if "enum" in held:
        return ", ".join(f"`{json.dumps(choice)}`" for choice in held["enum"])
    if "anyOf" in held:
        return " or ".join(_type(choice) for choice in held["anyOf"])
    kind = held["type"]
    if kind == "array":
        return "list of tables" if "$ref" in held["items"] else "list of text"
    words = {
        "integer": "whole number",
        "number": "number",
        "boolean": "true or false",
        "object": "table",
        "string": "text",
    }
    bounds = schema.range_of(held) or (
        f"up to {length} characters" if (length := held.get("maxLength")) else ""
    )
    return ("duration" if isinstance(kind, list) else words[kind]) + (f", {bounds}" if bounds else "")
