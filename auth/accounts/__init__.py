"""Local accounts: passwords, the links that create them, and the limits on guessing them. Start with `service`: sign-in
with a name and a password. It also has the rules for passwords, their hashes, the limits on guessing, and the links
for invitations, resets and the first administrator. Passkeys are independent of all of them: see `passkeys`."""
