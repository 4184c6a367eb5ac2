"""The web pages for people: sign-in, consent, account."""
