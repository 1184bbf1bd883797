"""A bridge: forwards a topic of one cluster to an address of another. Hops ensure that each message is accepted once there."""
