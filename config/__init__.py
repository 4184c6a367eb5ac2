"""Settings, errors, paths, logging and the formats of times and text. Every other package may import this one."""
