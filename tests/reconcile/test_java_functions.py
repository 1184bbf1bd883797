"""Questions that PySpark asks Java while it builds columns."""

from typing import Any

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F


def test_functions_are_not_asked_for(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column is built by calls alone: no question for a class or a method, or for the line of Python."""
    gateway: Any = spark.sparkContext._gateway
    client = gateway._gateway_client
    asked: list[str] = []
    send = client.send_command

    def noted(command: str, *given: Any, **named: Any) -> Any:
        asked.append(command.splitlines()[0])
        return send(command, *given, **named)

    F.col("first").isNull()  # PySpark reads its settings once
    monkeypatch.setattr(client, "send_command", noted)
    built: Column = F.coalesce(F.col("a"), F.lit(1), F.when(F.col("b").isNull() & (F.col("c") == 2), "d"))

    assert isinstance(built, Column)
    assert {command for command in asked if command != "m"} == {"c", "i"}, (
        asked
    )  # m: objects that Python has freed
    assert asked.count("c") < 25
