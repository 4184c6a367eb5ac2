"""Text processing independent of storage: folding, segmentation, stemming, chunking, token estimates."""
