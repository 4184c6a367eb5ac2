"""The OAuth 2.1 authorization server without HTTP: clients, grants, codes and tokens. Read `grants` first."""
