"""Catalog of the source: tables, types, partitions, publications, and changes in them.

Nothing here changes anything on the server; what the gateway creates there is in
`gateway.source.provisioning`.
"""
