"""The program with several workers, as users run it: `florilegium serve --workers 2` on PostgreSQL and Valkey."""
