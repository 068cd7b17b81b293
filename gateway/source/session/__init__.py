"""Sessions on the source server: settings, timeouts, interruption, and errors that say what to do.

Every SQL connection of the gateway is opened here. The replication connection is in
`gateway.source.stream`.
"""
