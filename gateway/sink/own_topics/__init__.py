"""The gateway's own topics: progress, requests of commands, owners of subscriptions' topics.

The format of their records is in `gateway.envelope`; they are written and read back here.
"""
