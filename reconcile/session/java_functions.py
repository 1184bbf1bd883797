"""Looks up the Java functions behind columns only once in a session.

PySpark asks Java for class and method at each call of a function. These questions are a third of all calls to
Java in a run.
"""

from typing import Any, Final

from py4j.java_gateway import JavaClass, JavaMember
from py4j.protocol import STATIC_PREFIX
from pyspark.sql import SparkSession

_FUNCTIONS: Final = "org.apache.spark.sql.functions"
_UTILS: Final = "PythonUtils"
_SHORT_NAME: Final = "functions"
"""PySpark's short name of the same class."""


def find_functions(spark: SparkSession) -> None:
    """Cache functions where PySpark looks for them. These places are private, so a test counts the calls."""
    java: Any = spark.sparkContext._jvm
    for name in (_FUNCTIONS, _UTILS):
        found = getattr(java, name)
        _keep_methods(found)
        setattr(java, name, found)
    setattr(java, _SHORT_NAME, getattr(java, _FUNCTIONS))


def _keep_methods(found: JavaClass) -> None:
    for name in dir(found):
        if not hasattr(type(found), name):
            vars(found)[name] = JavaMember(name, None, STATIC_PREFIX + found._fqn, found._gateway_client)
