"""What rules and dashboards ask Prometheus for, and what processes expose."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from tests.support.checkout import ROOT

OPS: Final = ROOT / "ops"
RULES: Final = OPS / "prometheus" / "ringfence.rules.yml"
DASHBOARD: Final = OPS / "grafana" / "ringfence.json"
_NAME: Final = re.compile(r"\bringfence_[a-z_]+\b")
_SUFFIXES: Final = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}


def expressions() -> list[str]:
    """Of all panels and variables of the dashboard."""

    def inside(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            for key, item in value.items():
                if key in {"expr", "definition"}:
                    yield item
                else:
                    yield from inside(item)
        elif isinstance(value, list):
            for entry in value:
                yield from inside(entry)

    return list(inside(json.loads(DASHBOARD.read_text("utf-8"))))


def filled(query: str) -> str:
    """A query of the dashboard with its variables filled in."""
    return query.replace("$__rate_interval", "5m").replace("$address", ".*")


def named() -> set[str]:
    rules = "\n".join(
        line
        for line in RULES.read_text("utf-8").splitlines()
        if "ringfence." not in line and "- name:" not in line
    )
    return set(_NAME.findall("\n".join([rules, *expressions()])))


def exposed(exposition: str) -> set[str]:
    """Names of the samples that an exposition has, or will have when there is something to count."""
    kinds = re.findall(r"^# TYPE (\S+) (\S+)$", exposition, re.MULTILINE)
    return {
        name if name.endswith(suffix) else name + suffix for name, kind in kinds for suffix in _SUFFIXES[kind]
    }
