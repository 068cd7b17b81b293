"""Signs of the job's work: figures, times of cuts, metrics and health over HTTP.

The job's threads write `figures`; everything else here only reads them. Telemetry that needs the
states of the tables as well, such as lineage, is in `spark_consumer.job`.
"""
