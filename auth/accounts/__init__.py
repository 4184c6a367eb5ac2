"""Local accounts: passwords, the links that create them, and the limits on guessing them. Start with `service`: sign-in
with a name and a password. It uses `passwords` (rules, hashes and the limits on guessing) and `links` (invitations,
resets, the first administrator). Passkeys are independent of all of them: see `passkeys`."""
