"""Sign-in with OpenID Connect providers: discovery, the authorization code flow, ID tokens, and who is allowed."""
