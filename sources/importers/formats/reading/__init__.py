"""What people keep from reading: highlights, bookmarks, saved articles and references."""
