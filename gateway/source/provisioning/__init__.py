"""The gateway's own objects on the source server, and its privileges there.

Publications and event triggers are made, changed or only checked here, and what is missing is said
as statements for an owner. Objects of others are read in `gateway.source.catalog`.
"""
