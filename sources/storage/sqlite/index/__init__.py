"""Full-text indexes and their statistics."""
# Read text_index.py first: how an index follows the rows. statistics.py counts rows and matches for the weights of
# terms; message_index.py builds the indexes that only some searches of messages need.
