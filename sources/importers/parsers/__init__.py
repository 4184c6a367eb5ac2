"""Document parsers. They run in a subprocess with resource limits, because documents come from untrusted sources."""
