"""Sessions: who they belong to, how long they live and what is kept between two calls."""

# A session of a legacy client (`store`) is what `initialize` negotiated. Session state (`state`) is what searches
# remember: seen items, queries and defaults. Modern clients have no session, but can have state: its handle is in
# every response to a search. Both are bound to the principal, so that an id or a handle alone gives access to
# nothing.
