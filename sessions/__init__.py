"""What a session remembers between two calls, for how long, and for whom."""
