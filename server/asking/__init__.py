"""Ask: answers a question from a person's own library, with citations. Read `service` first."""
