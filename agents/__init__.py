"""The path of a message: batch, home, verdict, emit; the lane; the address agent."""
