"""Jars of the Spark job and of the local servers: fetched by Ivy, checked, cached.

`gateway.commands.consume` needs them in production. The servers that run from them are in
`devkit.embedded`.
"""
