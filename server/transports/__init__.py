"""HTTP, HTTP+SSE, WebSocket and stdio: each transport is a thin layer around the dispatcher."""

# Start with `http`: nearly all clients use it. The others, `bounded_websocket`, `sse` and `stdio`, feed a lasting
# `Connection` (`server/protocol/connection`). The client side of the WebSocket is `bridge`, for clients that only
# know stdio.
#
# Before a request has a credential, only these see it: `bounded_http` and `bounded_websocket` limit what a stranger
# can make the server parse, `client_connections` how many connections and bytes there are, `origin` which sites may
# send requests.
