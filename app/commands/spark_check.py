"""Whether Spark is installed: workers, consumers and bridges run without it."""

from importlib.util import find_spec

from ringfence_kafka.errors import PrerequisiteError


def require_spark() -> None:
    """Say it before a verb imports what is not there.

    Raises:
        PrerequisiteError: it is not installed.
    """
    missing = [name for name in ("pyspark", "matplotlib", "jinja2") if find_spec(name) is None]
    if missing:
        raise PrerequisiteError(
            f"this verb runs on Spark, and there is no {', '.join(missing)} here: pip install 'ringfence[reconcile]', or use the "
            "image ringfence-reconcile"
        )
