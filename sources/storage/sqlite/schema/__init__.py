"""The tables of a user's three files. A column `<name>_seg` holds what the index needs in place of `<name>`, if any.
`tables` is the schema of a new file. `migrations` opens older ones, after `conversion` has converted those from before
release 0.1.0. `kinds` adds the tables of kinds from other distributions."""
