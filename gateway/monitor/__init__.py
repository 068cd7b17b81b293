"""Monitoring of a gateway: status, health, metrics and the status page."""
