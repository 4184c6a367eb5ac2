"""Runs `florilegium` as `python -m server.cli`, for checkouts that are not installed."""

from server.cli import main

main()
