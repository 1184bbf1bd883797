"""Checks whether Spark is installed, since workers, consumers and bridges run without it."""

from importlib.util import find_spec

from ringfence_kafka.errors import PrerequisiteError


def require_spark() -> None:
    """Report missing packages before a command imports them.

    Raises:
        PrerequisiteError: A package is not installed.
    """
    missing = [name for name in ("pyspark", "matplotlib", "jinja2") if find_spec(name) is None]
    if missing:
        raise PrerequisiteError(
            f"this verb runs on Spark, and there is no {', '.join(missing)} here: pip install 'ringfence[reconcile]', or use the "
            "image ringfence-reconcile"
        )
