"""Replication connection: walsender commands, options, slot, and the stream itself.

Frames leave it as bytes; `gateway.pgoutput` decodes them.
"""
