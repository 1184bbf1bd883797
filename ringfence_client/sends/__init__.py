"""What handlers send, and the states of their groups: written with the acknowledgement."""
