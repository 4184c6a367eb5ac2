"""Settings, errors, paths and logging: what every other package may rely on and none may change."""
