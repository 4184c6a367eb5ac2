"""REST operations over plain HTTP and JSON, their OpenAPI document, and HTML pages."""

# Read first: `operation.py` (what an operation declares), `handler.py` (how a request is served) and `routes.py` (the
# table of all operations).
#
# `inputs.py` and `forms.py` read requests, `openapi.py` describes the operations, and `errors.py` has the errors that
# only HTTP has. Every other module declares the operations of one subject, next to their handlers. The pages of the
# console call the same handlers, so that they need no second implementation, and have the same checks.
