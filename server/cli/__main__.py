"""`python -m server.cli` is `florilegium`, for trees that are not installed."""

from server.cli import main

main()
