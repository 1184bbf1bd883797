"""A bridge: forwards a topic of one cluster to an address of another. Hops make it once and only once there."""
