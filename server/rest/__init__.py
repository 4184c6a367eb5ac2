"""REST operations over plain HTTP and JSON, their OpenAPI document, and HTML pages. Read `operation` first."""
