"""Authentication: credentials, users, scopes, rate limits and the request context. Read `context` first."""
