"""The collections of a library, one module each."""
