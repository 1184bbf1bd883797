"""What Ringfence requires of topics, and what is wrong with those that exist."""
