from tests.server.cli.conftest import program

__all__ = ["program"]
