"""Real servers for tests: each is started by the first test that needs it and stopped at the end of the run."""
