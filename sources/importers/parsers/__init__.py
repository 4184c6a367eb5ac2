"""Document parsers. They run in a subprocess with resource limits, because documents come from untrusted sources.
`parser_process.py` starts the subprocess, `__main__.py` is what runs in it: it limits itself, enters the sandbox
without any file, and reads the document from a descriptor that it inherits. `parsed_document.py` has the result."""
