"""The tables of a user's three files. A column `<name>_seg` holds what the index needs in place of `<name>`, if any."""
