"""The APIs of other systems, one package each, so that their clients can use this server."""
