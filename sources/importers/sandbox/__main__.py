"""Reports which layers of the sandbox work here: `python -m sources.importers.sandbox`."""

import sys

import msgspec

from sources.importers.sandbox.confinement import enter_sandbox

if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(enter_sandbox(())))
