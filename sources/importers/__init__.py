"""Everything in: foreign exports, files and folders, read item by item into the caller's library. One file a format."""
