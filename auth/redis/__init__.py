"""State that the processes of a deployment share, in Redis or Valkey: the connection, rate limits, tickets, keys."""

# Start with `connection`: one pipelined connection, and scripts that Redis runs as one step. What is built on it is
# in `stores`, and in `sessions/redis` and `server/redis`. Each has a counterpart that keeps the same in the process.
