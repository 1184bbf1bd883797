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
    in_header = keys.duplicate_id_from == "header"
    values: dict[str, object] = {
        "name": audit.configured or audit.topic.name,
        "partitioner": audit.partitioner,
        "id_cache_size": audit.recommended,
        "lanes": keys.lanes or None,
        "input_topic": audit.topic.name if audit.configured not in {"", audit.topic.name} else None,
        "duplicate_id_from": None if in_header else keys.duplicate_id_from,  # JSON writes a tuple as a list
        "duplicate_id_headers": keys.duplicate_id_headers if in_header else None,
        "duplicate_id_missing": None
        if keys.duplicate_id_missing == "unchecked"
        else keys.duplicate_id_missing,
        "group_header": keys.group_header or None,
        "id_max_age": keys.id_max_age or None,
    }
    lines = [] if audit.recommended is not None else [NO_SIZE]
    lines += [
        f"{name} = {json.dumps(value, ensure_ascii=False)}"
        for name, value in values.items()
        if value is not None
    ]
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
