"""Requirements for topics, and problems of those that exist."""
