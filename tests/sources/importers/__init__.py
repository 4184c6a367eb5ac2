"""Tests of the importers and the import runner."""
