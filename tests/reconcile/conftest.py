"""One Spark session for all tests of a process: it takes ten seconds to start."""

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from reconcile.session.class_archive import fetching_alone, ivy_folder
from reconcile.session.java_functions import find_functions
from reconcile.session.session import configured
from tests.reconcile.rows import Frames


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Yield a session tuned for small frames: a few rows are processed sooner than a plan is compiled or optimized again."""
    conf = configured("local[2]", submitted=False, environ=os.environ, records=0)
    conf.set("spark.driver.memory", "1g").set("spark.sql.shuffle.partitions", "2")
    with fetching_alone(ivy_folder({})):
        session = SparkSession.builder.config(conf=conf).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    find_functions(session)
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _forgotten(request: pytest.FixtureRequest) -> Iterator[None]:
    """Clear a test's cached frames after it: Spark keeps the plan of each one, and compares all later plans with it."""
    yield
    if "spark" in request.fixturenames:
        request.getfixturevalue("spark").catalog.clearCache()


@pytest.fixture
def frames(spark: SparkSession) -> Frames:
    return Frames(spark)
