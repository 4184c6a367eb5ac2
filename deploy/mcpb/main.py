"""Starts Florilegium for a desktop application: `python main.py [FOLDER...]` serves MCP on stdin and stdout.

The application sets the variables from what its user entered. The folders are followed: the server reads them while it
runs, and keeps the library current with them.
"""

import os
import subprocess
import sys

_PROGRAM = (sys.executable, "-m", "server.cli")


def entered(text: str) -> str:
    """Returns a value with `${HOME}` replaced, which applications leave in defaults. A reference to a value that was
    not entered becomes an empty text."""
    value = os.path.expandvars(text.strip())
    return "" if value.startswith("${") else value


def main(folders: list[str]) -> None:
    os.environ["FLORILEGIUM_DATA_DIR"] = entered(os.environ.get("FLORILEGIUM_DATA_DIR", ""))
    if server := entered(os.environ.pop("FLORILEGIUM_BUNDLE_SERVER", "")):
        os.execv(sys.executable, [*_PROGRAM, "stdio", "--remote", server])  # noqa: S606 - arguments, not a shell
    for folder in filter(None, map(entered, folders)):
        # A folder that is followed already is left alone. On stdout, the application would read its messages as MCP.
        command = [*_PROGRAM, "follow", "add", folder]
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)  # noqa: S603 - as above
    os.execv(sys.executable, [*_PROGRAM, "stdio"])  # noqa: S606 - as above


if __name__ == "__main__":
    main(sys.argv[1:])
