"""One Spark session for all tests of a process: it takes ten seconds to start."""

import os
from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import SparkSession

from app.embedded.broker import EmbeddedBroker
from reconcile.session.class_archive import fetching_alone, ivy_folder
from reconcile.session.session import configured, find_functions
from tests.reconcile import test_planted, test_planted_bridges, test_planted_transactions
from tests.reconcile.rows import Frames
from tests.support.reconcile.planted import Judged, judged_histories
from tests.support.reconcile.started import Started


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Yield a session tuned for small frames: a few rows are processed sooner than a plan is compiled or optimized again."""
    conf = configured("local[2]", submitted=False, environ=os.environ, records=0)
    conf.set("spark.driver.memory", "1g")
    with fetching_alone(ivy_folder({})):
        session = SparkSession.builder.config(conf=conf).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    find_functions(session)
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _forgotten(request: pytest.FixtureRequest) -> Iterator[None]:
    """Clear a test's cached frames after it: Spark keeps the plan of each one, and compares all later plans with it.

    Small frames are shuffled to two tasks. A run chooses the number by its records.
    """
    if "spark" not in request.fixturenames:
        yield
        return
    spark: SparkSession = request.getfixturevalue("spark")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    yield
    spark.catalog.clearCache()


@pytest.fixture(scope="session")
def judged(broker: EmbeddedBroker, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """One run over all planted histories."""
    histories = test_planted.PLANTED | test_planted_bridges.HISTORIES | test_planted_transactions.HISTORIES
    return judged_histories(broker.bootstrap_servers, spark, tmp_path_factory.mktemp("planted"), histories)


@pytest.fixture(scope="session")
def frames(spark: SparkSession) -> Frames:
    return Frames(spark)


@pytest.fixture
def start() -> Iterator[Callable[..., Started]]:
    """Yield a function that starts a command of ``ringfence``, which ends with the test."""
    started: list[Started] = []

    def begin(*arguments: str) -> Started:
        started.append(Started(*arguments))
        return started[-1]

    yield begin
    for item in started:
        item.destroy()
