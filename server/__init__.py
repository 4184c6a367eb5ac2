"""The transports (HTTP, WebSocket, stdio, command line), the REST and compatibility APIs, and the dispatcher."""

# Start with `lifespan`, which constructs all services, and `admission`, the checks before any request is served.
# Then:
#
# HTTP: `app` (routes), `middleware` (log lines, error responses), `serving` (uvicorn, shutdown), `service_endpoints`.
# Limits: `call_limits`, and `transports/client_connections` for connections and memory.
# State: `stores` says what is kept in the process and what in Redis, `recent_calls`, `import_board`.
# Imports over HTTP: `import_jobs`.
# Processes: `worker_processes` starts several, `worker_state` and `metrics` add up what they do, `service_manager`
# talks to systemd, `directory_lock` keeps a second server away from the files of the first, `loop_watchdog` reports
# what blocks.
# What clients see: `profiles` (lists of tools with instructions), `server_info`, `client_guides`.
