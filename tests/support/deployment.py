"""The files of ops/: schemas of the programs that read them, and the metrics that they query."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import kubernetes_validate
import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from app import cli
from ringfence_client.__main__ import consume
from tests.support.checkout import ROOT

KUBERNETES_VERSION: Final = "1.31"
_COUNT: Final = {"type": "integer", "minimum": 0}
_TEXTS: Final = {"type": "object", "additionalProperties": {"type": "string"}}
SCALED_OBJECT: Final = {
    "type": "object",
    "required": ["scaleTargetRef", "triggers"],
    "additionalProperties": False,
    "properties": {
        "scaleTargetRef": _TEXTS,
        "minReplicaCount": _COUNT,
        "maxReplicaCount": _COUNT,
        "pollingInterval": _COUNT,
        "cooldownPeriod": _COUNT,
        "advanced": {"type": "object"},
        "triggers": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["type", "metadata"],
                "additionalProperties": False,
                "properties": {"type": {"const": "kafka"}, "metadata": _TEXTS, "authenticationRef": _TEXTS},
            },
        },
    },
}
"""Schema of the parts of KEDA's documentation that an example of ours may use."""
KUBERNETES: Final = ROOT / "ops" / "kubernetes"


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text("utf-8")))


def kubernetes_fault(manifest: dict[str, Any]) -> str:
    """Return the error for which Kubernetes 1.31, or KEDA, would refuse it; empty = none."""
    if manifest["kind"] == "ScaledObject":
        error = best_match(Draft202012Validator(SCALED_OBJECT).iter_errors(manifest["spec"]))
        return "" if error is None else f"{error.json_path}: {error.message}"
    try:
        kubernetes_validate.validate(manifest, KUBERNETES_VERSION, strict=True)
    except kubernetes_validate.ValidationError as refused:
        return f"{refused.json_path}: {refused.message}"
    return ""


def manifests() -> dict[str, dict[str, Any]]:
    return {
        f"{document['kind']}/{document['metadata']['name']}": document
        for path in sorted(KUBERNETES.glob("*.yaml"))
        if path.name != "kustomization.yaml"
        for document in documents(path)
    }


def pods(manifest: dict[str, Any]) -> Iterator[dict[str, Any]]:
    spec = manifest.get("spec", {})
    if manifest["kind"] == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    if "template" in spec:
        yield spec["template"]["spec"]


def seconds(text: str) -> int:
    return int(text.removesuffix("s")) if text.endswith("s") else int(text.removesuffix("m")) * 60


def _begins_with_option(arguments: list[str]) -> bool:
    return not arguments or arguments[0].startswith("-")


def understood(arguments: list[str]) -> str:
    """Return the error of the command line about these arguments; empty = it takes them. Nothing runs."""
    # With the program's own settings: a command remembers the first -h that it got.
    context = click.Context(cli.cli, info_name="ringfence", **cli.cli.context_settings)
    command: click.Command = cli.cli
    rest = list(arguments)
    while isinstance(command, click.Group) and not (
        command.invoke_without_command and _begins_with_option(rest)
    ):
        name, found, rest = command.resolve_command(context, rest)
        if found is None:
            return f"no verb {name}"
        command = consume if name == "consume" else found
        context = click.Context(command, parent=context, info_name=name)
    try:
        command.make_context(command.name, rest, parent=context.parent)
    except click.ClickException as error:
        return error.format_message()
    return ""


OPS: Final = ROOT / "ops"
RULES: Final = OPS / "prometheus" / "ringfence.rules.yml"
DASHBOARD: Final = OPS / "grafana" / "ringfence.json"
_NAME: Final = re.compile(r"\bringfence_[a-z_]+\b")
_SUFFIXES: Final = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}


def expressions() -> list[str]:
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
    return query.replace("$__rate_interval", "5m").replace("$address", ".*")


def named() -> set[str]:
    rules = "\n".join(
        line
        for line in RULES.read_text("utf-8").splitlines()
        if "ringfence." not in line and "- name:" not in line
    )
    return set(_NAME.findall("\n".join([rules, *expressions()])))


def exposed(exposition: str) -> set[str]:
    """Return the names of the samples that an exposition has, or will have when there is something to count."""
    kinds = re.findall(r"^# TYPE (\S+) (\S+)$", exposition, re.MULTILINE)
    return {
        name if name.endswith(suffix) else name + suffix for name, kind in kinds for suffix in _SUFFIXES[kind]
    }
