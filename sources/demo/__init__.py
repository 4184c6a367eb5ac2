"""A small library to try things on: one year of an observatory that never was, in all five sources. Written for this
purpose; everybody in it is invented."""

from sources.demo.shelving import Filled, demo_uuid, fill, fill_once

__all__ = ["Filled", "demo_uuid", "fill", "fill_once"]
