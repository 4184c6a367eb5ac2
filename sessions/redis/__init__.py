"""Sessions and session state in Redis or Valkey, shared by the processes of a deployment."""
