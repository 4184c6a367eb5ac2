"""HTTP, HTTP+SSE, WebSocket and stdio: each transport is a thin layer around the dispatcher. Read `http` first."""
