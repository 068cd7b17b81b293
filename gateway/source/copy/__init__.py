"""Reading of a table for its copy: chunks, their queries, ``COPY ... TO STDOUT``, and errors.

The order of chunks is decided in `gateway.copy` and `gateway.runtime.copy`.
"""
