"""Keeps libraries current with followed sources while the server runs. Read `service` first."""
