"""The OAuth 2.1 authorization server without HTTP: clients, grants, codes and tokens."""

# Start with `grants`: what one person allowed one client. A client (`clients`, or `client_assertions` if it has a
# metadata document) sends the person to us, and the person comes back to one of its `redirects` with a code for the
# grant, or enters the code of a device (`device_codes`). Codes are exchanged for `tokens`, which end with their
# grant. The endpoints and the consent page are in `server/oauth`.
