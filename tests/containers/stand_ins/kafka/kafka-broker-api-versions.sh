#!/opt/ringfence/bin/python
"""Ask a broker for its metadata, as the tool of this name asks for its versions; exit code 1 = no answer.

The tool itself is not among the jars of a broker.
"""

import sys

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

try:
    AdminClient({"bootstrap.servers": sys.argv[2], "log_level": 0}).list_topics(timeout=5)
except KafkaException as error:
    sys.exit(str(error))
