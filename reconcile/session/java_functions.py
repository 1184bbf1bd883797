"""Java's functions behind columns, found once for a session.

PySpark asks Java for the class and for the method at each call of a function. Such questions are a third of all that a run asks.
"""

from typing import Any, Final

from py4j.java_gateway import JavaClass, JavaMember
from py4j.protocol import STATIC_PREFIX
from pyspark.sql import SparkSession

_FUNCTIONS: Final = "org.apache.spark.sql.functions"
_UTILS: Final = "PythonUtils"
_SHORT_NAME: Final = "functions"
"""PySpark's other name of the functions."""


def find_functions(spark: SparkSession) -> None:
    """Keep functions where PySpark looks for them. The places are its own, so a test counts the questions."""
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
