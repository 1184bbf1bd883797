"""What other programs import: the group-ordered consumer of accepted topics."""

from ringfence_client.consumer import GroupConsumer
from ringfence_client.message import Message, Reject, Release, Retry
from ringfence_client.options import ConsumerOptions

__all__ = ["ConsumerOptions", "GroupConsumer", "Message", "Reject", "Release", "Retry"]
