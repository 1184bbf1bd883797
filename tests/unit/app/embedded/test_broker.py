from pathlib import Path

from app.embedded.broker import EmbeddedBroker
from app.embedded.server_files import LOG

_ERROR = """\
2026-01-01 00:00:00,000 INFO  [BrokerServer id=1] starting (kafka.server.BrokerServer)
2026-01-01 00:00:00,001 ERROR [BrokerServer id=1] Fatal error during startup (kafka.server.BrokerServer)
org.apache.kafka.common.KafkaException: Class no.such.Reporter cannot be found
\tat org.apache.kafka.common.utils.Utils.newInstance(Utils.java:417)
Caused by: java.lang.ClassNotFoundException: no.such.Reporter
\tat java.base/java.lang.Class.forName(Class.java:1)
\t... 12 more
"""


def test_what_an_error_quotes(tmp_path: Path) -> None:
    """The error is shown without the frames of its trace, however many lines the shutdown logs after it.

    A log without an error is shown by its last lines.
    """
    broker = EmbeddedBroker(tmp_path)
    after = [f"2026-01-01 00:00:01,000 INFO  stopped part {number} (kafka)" for number in range(40)]
    (tmp_path / LOG).write_text(_ERROR + "\n".join(after))

    assert broker.log_tail().splitlines() == [
        "  2026-01-01 00:00:00,001 ERROR [BrokerServer id=1] Fatal error during startup (kafka.server.BrokerServer)",
        "  org.apache.kafka.common.KafkaException: Class no.such.Reporter cannot be found",
        "  Caused by: java.lang.ClassNotFoundException: no.such.Reporter",
    ]
    (tmp_path / LOG).write_text("\n".join(after))
    assert broker.log_tail().splitlines() == [f"  {line}" for line in after[-20:]]
