"""A small demo library with items of all five sources: one year of an invented observatory."""

from sources.demo.loader import FillResult, demo_uuid, fill, fill_once

__all__ = ["FillResult", "demo_uuid", "fill", "fill_once"]
