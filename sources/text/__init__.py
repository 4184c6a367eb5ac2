"""Text processing independent of storage: folding, segmentation, stemming, chunking, token estimates."""
# Read segmentation.py first: the index form of a text, in which everything is searched, and the stems of its words.
# alignment.py leads from the form back to the text; folding.py and `stem` must agree with what FTS5 does, or hits are
# not highlighted.
