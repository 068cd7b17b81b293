"""The source's catalog, read: tables, types, partitions, publications, and what changes in them.

Nothing here changes anything on the server; what the gateway creates there is in
`gateway.source.provisioning`.
"""
