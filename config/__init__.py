"""Settings, errors, paths, logging and the formats of times and text. Every other package may import this one."""

# `settings` is the table of settings and their rules, and `loading` reads them. `errors` draws the tree of errors that
# every package raises. `paths` is the only module that turns a user id into a path, `postgres` the only package that
# talks to asyncpg, and `public_http` the only module that fetches addresses that strangers choose.
