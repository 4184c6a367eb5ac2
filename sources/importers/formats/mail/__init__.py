"""Email: mbox files and single messages."""
