"""Hypothesis profile for all tests: no deadlines, because timing on a busy machine says nothing about correctness."""

from hypothesis import HealthCheck, settings

settings.register_profile("florilegium", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("florilegium")
