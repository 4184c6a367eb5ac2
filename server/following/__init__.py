"""Keeps libraries current with followed sources while the server runs.

`service.py` decides when a source is read, and `runs.py` reads it once; read these first. `locations.py` says which
paths and URLs a user may follow, and watches folders. `operations.py` is what users can do with their sources,
`deployment_operations.py` what administrators can do with whole deployments of tldw, and `deployments.py` turns a
deployment into sources of its users. How a source is read is in `sources/following`.
"""
