"""The web pages for people: search, library, history, items, import, connect, sign-in, account, administration. Read
`routes` first."""
