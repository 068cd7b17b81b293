"""The running gateway: what a start decides, the one loop, the copy, and what changes meanwhile."""
