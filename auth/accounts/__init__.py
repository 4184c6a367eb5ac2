"""Local accounts: passwords, the links that create them, and the limits on guessing them."""
