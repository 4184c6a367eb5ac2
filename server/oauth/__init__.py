"""The OAuth 2.1 authorization server over HTTP: endpoints for clients, and pages for people. Read `authorize_page`
first."""
