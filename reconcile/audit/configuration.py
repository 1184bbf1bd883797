"""Configuration that follows from an audit. Pure."""

import json
from typing import Final

from reconcile.audit.result import Audit

GROUP_HEADERS: Final = ("JMSXGroupID", "_AMQ_GROUP_ID", "qpid.group", "x-group")
"""Names of group headers in brokers with message groups."""

NO_SIZE: Final = "# no id_cache_size: less than an hour of traffic does not show how large the ring must be"


def toml(audit: Audit) -> str:
    """Return the address as an entry for ringfence.toml."""
    keys = audit.settings
    values: dict[str, object] = {
        "name": audit.configured or audit.topic.name,
        "partitioner": audit.partitioner,
    }
    if audit.recommended is not None:
        values["id_cache_size"] = audit.recommended
    if keys.lanes:
        values["lanes"] = keys.lanes
    if audit.configured and audit.configured != audit.topic.name:
        values["input_topic"] = audit.topic.name
    if keys.duplicate_id_from != "header":
        values["duplicate_id_from"] = keys.duplicate_id_from  # JSON writes a tuple as a list
    else:
        values["duplicate_id_headers"] = list(keys.duplicate_id_headers)
    if keys.duplicate_id_missing != "unchecked":
        values["duplicate_id_missing"] = keys.duplicate_id_missing
    if keys.group_header:
        values["group_header"] = keys.group_header
    if keys.id_max_age:
        values["id_max_age"] = keys.id_max_age
    lines = [] if audit.recommended is not None else [NO_SIZE]
    lines += [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()]
    if header := obvious_group_header(audit):
        # The audit measured lanes without this header. A large group in one lane may need a far larger ring.
        lines.append(f"# {header} looks like a group: run again with --group-header {header}")
    head = ["# not as it is: Ringfence refuses a compacted input"] if audit.topic.compacted else []
    return "\n".join([*head, "[[addresses]]", *lines]) + "\n"


def obvious_group_header(audit: Audit) -> str:
    """Return a usual group header that keyless records have, or an empty string."""
    if audit.sum("keyed") or audit.settings.group_header:
        return ""
    seen = {header.name for header in audit.headers}
    return next((header for header in GROUP_HEADERS if header in seen), "")
