"""Checks of the connection between a client and a server, as seen from the client's side."""

# Exists because people who add a server to a hosted client see only "failed to connect". The doctor sends the same
# requests as the client, and names the first that fails with the setting to change.
#
# Read first: `replay.py` (the hops in their order). `oauth_hops.py` has the clients and the hops of signing in,
# `requests.py` sends and explains, and `tokens.py` says why a credential is refused. The checks of the machine and the
# settings, without a connection, are in `server/cli/checks.py`.
