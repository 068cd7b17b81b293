"""Changes in Spark frames: strategies by batch and table."""
