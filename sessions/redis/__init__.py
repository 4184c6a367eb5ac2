"""Sessions and session state in Redis or Valkey, shared by the processes of a deployment. The scripts of `state` are
the most complex ones in Redis: read the comment above them first. While Redis does not answer, `store` serves the
sessions that this process knows, and searches run without state."""
