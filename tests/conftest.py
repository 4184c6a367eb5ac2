"""For all tests: no property is judged by how long it took. Machines are noisy, and a slow one is not wrong."""

from hypothesis import HealthCheck, settings

settings.register_profile("florilegium", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("florilegium")
