"""The APIs of other systems, one package each, so that their clients can use this server.

Each package translates between the schemas of its system and the same libraries, search and conversations that our own
tools use. Start with `routes.py` or `tools.py` of a package, which list what it offers, and go on with the modules that
they name. `tests/compatibility/manifests` has what is promised to the clients of each system.
"""
