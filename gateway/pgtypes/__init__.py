"""PostgreSQL's text formats <-> Python values, and comparison as PostgreSQL defines it. Pure."""
