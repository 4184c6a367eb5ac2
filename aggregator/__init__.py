"""One question to every source, one ranked answer back."""
