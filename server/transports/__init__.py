"""HTTP, WebSocket and stdio: each transport is a thin layer around the dispatcher."""
