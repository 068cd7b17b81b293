"""What people and machines are shown of a gateway: status, health and metrics."""
