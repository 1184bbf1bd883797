"""The files of ops/, and the schemas of the programs that read them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from app import cli
from ringfence_client.__main__ import consume

ROOT: Final = Path(__file__).resolve().parents[2]
SCHEMAS: Final = ROOT / "tests" / "fixtures" / "schemas"
KUBERNETES: Final = ROOT / "ops" / "kubernetes"


def documents(path: Path) -> list[Any]:
    """All documents of a YAML file."""
    return list(yaml.safe_load_all(path.read_text("utf-8")))


def schema(name: str) -> dict[str, Any]:
    """One of the schemas that lie here."""
    found: dict[str, Any] = json.loads((SCHEMAS / f"{name}.json").read_text("utf-8"))
    return found


def kubernetes_fault(manifest: dict[str, Any]) -> str:
    """What Kubernetes, or KEDA, would refuse; empty = nothing."""
    kind = manifest["kind"]
    if kind == "ScaledObject":
        wanted = schema("keda")
    else:
        definitions = schema("kubernetes-1.31")["$defs"]
        wanted = {"$ref": f"#/$defs/{kind}", "$defs": definitions}
    return fault(wanted, manifest)


def fault(wanted: dict[str, Any], found: Any) -> str:
    """Where it does not fit, and why."""
    error = best_match(Draft202012Validator(wanted).iter_errors(found))
    return "" if error is None else f"{error.json_path}: {error.message}"


def manifests() -> dict[str, dict[str, Any]]:
    """Those of ops/kubernetes, by kind and name."""
    return {
        f"{each['kind']}/{each['metadata']['name']}": each
        for path in sorted(KUBERNETES.glob("*.yaml"))
        if path.name != "kustomization.yaml"
        for each in documents(path)
    }


def pods(manifest: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Its pods' specification, if it has pods."""
    spec = manifest.get("spec", {})
    if manifest["kind"] == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    if "template" in spec:
        yield spec["template"]["spec"]


def seconds(text: str) -> int:
    """Of a duration as compose and systemd write it, in whole seconds or minutes."""
    return int(text.removesuffix("s")) if text.endswith("s") else int(text.removesuffix("m")) * 60


def _begins_with_option(arguments: list[str]) -> bool:
    """Of a verb that is one by itself, and has others below it."""
    return not arguments or arguments[0].startswith("-")


def understood(arguments: list[str]) -> str:
    """Whether the command line takes these arguments, and what it has against them; nothing runs."""
    # With the settings of the program: a command remembers the first -h that it was asked for.
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
