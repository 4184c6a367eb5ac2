"""Local accounts: passwords, the links that create them, and the limits on guessing them. Start with `service`: sign-in
with a name and a password. It also has the links for invitations, resets and the first administrator; `passwords` has
the rules, hashes and the limits on guessing. Passkeys are independent of all of them: see `passkeys`."""
