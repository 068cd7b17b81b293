"""One question each, asked of both tools in turn."""
