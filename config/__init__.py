"""Settings, errors, paths, logging and the formats of times and text. Read `settings` first."""
