"""The OAuth 2.1 authorization server over HTTP: endpoints for clients, and pages for people."""

# Exists because hosted clients such as claude.ai and ChatGPT connect by OAuth and by nothing else.
#
# Read first: `routes.py` (all addresses), then `authorize_page.py` (what people see) and `endpoints.py` (what programs
# call). `code_request.py` validates authorization requests, and `services.py` builds what the others share. Clients,
# grants, codes and tokens are stored by `auth/oauth`, which knows nothing of HTTP.
