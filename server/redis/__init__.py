"""What the server shares with other processes through Redis or Valkey: recent calls, and messages between processes."""
