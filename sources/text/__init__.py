"""Text processing that knows nothing of libraries: folding, segmentation, stemming, chunking, token estimates."""
