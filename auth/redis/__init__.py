"""State that the processes of a deployment share, in Redis or Valkey: the connection, rate limits, tickets, keys. Read
`connection` first."""
