"""Sign-in with OpenID Connect providers: discovery, the authorization code flow, ID tokens, and who is allowed. Start
with `service`: from the redirect to a provider to the user who comes back. The requests to the provider, and the checks
of what it returns, are in `client`."""
