"""Files in `deploy/`, release scripts, and servers that are started and stopped as a service manager does it."""
