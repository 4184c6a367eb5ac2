"""Checks of the connection between a client and a server, as seen from the client's side. Read `replay` first."""
