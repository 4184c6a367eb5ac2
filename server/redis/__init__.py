"""What the server shares with other processes through Redis or Valkey: recent calls, and messages between processes.
Start with `peers`: messages between processes, and leases on names. The import board and the reply tokens of the
message bus are scripts, so that of two processes that want the same, one gets it. `stores` opens everything."""
