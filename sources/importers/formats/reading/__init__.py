"""What people keep from reading: highlights, bookmarks, saved articles and references. `saved_links.py` and
`highlights.py` are shared: a saved address becomes a media item, a book with highlights one note. The pages behind the
addresses are not fetched."""
