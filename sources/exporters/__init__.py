"""Everything out: a library as files that people can read and that programs, ours among them, can read again."""
