import aiohttp
import pytest
from prometheus_client import Counter

from ringfence_kafka.http.auth import OPEN
from ringfence_kafka.http.server import ProcessMetrics, advertised, probe_routes, serving_routes
from ringfence_kafka.http.sockets import listen


@pytest.mark.parametrize(("ready", "status"), [(True, 200), (False, 503)])
async def test_probes(ready: bool, status: int) -> None:
    """``/live`` always answers; ``/health`` follows the report; ``/metrics`` shows what was registered and the process."""
    counted = Counter("counted", "Things.", registry=None)
    counted.inc(3)
    routes = probe_routes(lambda: {"ready": ready, "lanes": 2}, ProcessMetrics(counted))
    listener = listen("127.0.0.1", None)
    url = advertised(*listener.getsockname()[:2])
    async with serving_routes(routes, listener, OPEN), aiohttp.ClientSession() as session:
        live, health = await session.get(f"{url}/live"), await session.get(f"{url}/health")
        assert (live.status, await live.json()) == (200, {"live": True})
        assert (health.status, await health.json()) == (status, {"ready": ready, "lanes": 2})
        text = await (await session.get(f"{url}/metrics")).text()

    assert "counted_total 3.0" in text
    assert "process_start_time_seconds" in text
