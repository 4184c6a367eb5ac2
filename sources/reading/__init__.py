"""Reading items: retrieval modes, budgets, cursors and responses."""
