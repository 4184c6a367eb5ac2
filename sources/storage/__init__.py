"""Libraries: the storage contract that sources use, and the engines that implement it. All SQL is in this package."""
