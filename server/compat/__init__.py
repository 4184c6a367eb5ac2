"""The APIs of other systems, one package each, over the same libraries and search as our own tools. Start with `routes`
or `tools` of a package. `tests/compatibility/manifests` has what is promised to the clients of each system."""
