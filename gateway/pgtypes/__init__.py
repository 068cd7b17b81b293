"""PostgreSQL's text formats as Python values, and comparison as PostgreSQL defines it. Pure."""
