"""Reading of a table for its copy: chunks, their queries, ``COPY ... TO STDOUT``, and errors.

Which chunk comes when is decided in `gateway.copy` and `gateway.runtime.copy`.
"""
