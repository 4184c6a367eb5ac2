"""The sources of a library as tools, resources and prompts of the catalog. The caller's own library is opened for each
call, from its context alone."""

from server.tools.catalog import add_knowledge

__all__ = ["add_knowledge"]
