"""Authentication: credentials, users, scopes, rate limits and the request context."""

# Start with `context`: the principal and the request context, which every call receives. Then `authenticator`, which
# turns a credential into a principal. The rest follows the kinds of credentials:
#
# API keys: `registry`, with the users they belong to.
# JSON Web Tokens: `tokens` checks their claims, `signing_keys` and `jwks` find the key, `signatures` verifies.
# OAuth tokens that this server issues: `oauth`.
# People in browsers: `accounts` and `openid` sign them in, `browser_sessions` keeps them signed in, `notices` shows
# them what else has access.
# WebSocket tickets: `tickets`, which also has the keys that sign what clients carry between two requests.
#
# Users, keys, grants, follows and quotas are in the control database. Its contract is `control_database`, its tables
# are in `control_schema`; `sqlite_control` and `postgres_control` are the engines. A change by any process moves its
# revision, and results that were cached before are not used again: that is how a revocation takes effect at the next
# call.
