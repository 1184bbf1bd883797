"""When a run that no executor serves is reported and ended, and what the operator reads. The real cluster: tests/reconcile/test_cluster.py."""

from dataclasses import dataclass, field

from reconcile.session.executor_watch import NOTICE_S, SparkCluster, Watch, workers_of

WORKER = {
    "host": "10.0.0.7", "port": 40001, "cores": 4, "coresfree": 1, "memory": 512, "memoryfree": 512, "state": "ALIVE",
}  # fmt: skip


@dataclass
class _Cluster(SparkCluster):
    there: int = 0
    due: bool = True
    cancelled: int = 0
    now: float = 0.0
    said: list[str] = field(default_factory=list)

    def executors(self) -> int:
        return self.there

    def waits(self) -> bool:
        return self.due

    def offer(self) -> str:
        return "it asks for much; there is little"

    def cancel(self) -> None:
        self.cancelled += 1

    def watch(self) -> Watch:
        return Watch(self, 120.0, self.said.append, lambda: self.now)

    def lasts(self, watch: Watch, duration_s: float) -> None:
        end = self.now + duration_s
        while self.now < end:
            watch.check()
            self.now += 0.5


def test_no_executor_comes() -> None:
    """A missing executor is reported once after 30 s, and the run is ended after the time-out."""
    cluster = _Cluster()
    watch = cluster.watch()
    cluster.lasts(watch, NOTICE_S)
    assert cluster.said == []
    cluster.lasts(watch, 90)
    assert cluster.said == [
        "tasks wait, and no executor of Spark has come for 30 s: it asks for much; there is little. The run ends after 120 s (reconcile.executor_timeout)"
    ]
    assert (watch.fault, cluster.cancelled) == ("", 0)

    cluster.lasts(watch, 1)
    assert watch.fault.startswith(
        "tasks wait, and no executor of Spark has come for 120 s, so the run was ended: it asks for much; there is little. "
    )
    # A job that begins after the end is ended too.
    assert cluster.cancelled == 2


def test_executors_come_late() -> None:
    """Executors may be gone while the driver plans, because dynamic allocation brings them when tasks are due."""
    cluster = _Cluster(due=False)
    watch = cluster.watch()
    cluster.lasts(watch, 600)
    cluster.due = True
    cluster.lasts(watch, 119)
    assert (watch.fault, len(cluster.said)) == ("", 1)
    cluster.there = 2
    cluster.lasts(watch, 300)
    cluster.there = 0
    cluster.lasts(watch, 119)
    assert watch.fault == ""
    assert [name.partition(" for ")[0] for name in cluster.said] == [
        "tasks wait, and no executor of Spark has come",
        "all executors of Spark are lost, and none has come",
    ]

    cluster.lasts(watch, 2)
    assert watch.fault.startswith("all executors of Spark are lost, and none has come for 120 s")


def test_workers() -> None:
    """The line has what live workers have free."""
    state: dict[str, object] = {"workers": [WORKER, {**WORKER, "state": "DEAD"}]}

    assert workers_of({"workers": []}) == "the cluster has no worker"
    assert workers_of(state) == (
        "the cluster has 1 worker: 10.0.0.7:40001 has 1 of 4 cores and 512 of 512 MiB free"
    )
