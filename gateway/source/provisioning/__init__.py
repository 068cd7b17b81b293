"""The gateway's own objects on the source server, and the privileges that it has there.

Publications and event triggers are made, changed or only checked here, and what is missing is said
as statements for an owner. What others have made is read in `gateway.source.catalog`.
"""
