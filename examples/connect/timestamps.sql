-- Run by a superuser in the database that examples/connect/jdbc-sink.properties writes to.
--
-- The topics have a timestamp as Avro's timestamp-micros. Connect knows milliseconds only, so its
-- converters hand the number of microseconds on; with these casts PostgreSQL takes it as what it is.
CREATE FUNCTION timestamptz_of_micros(bigint) RETURNS timestamptz
LANGUAGE sql IMMUTABLE STRICT AS $$
  SELECT CASE $1
    WHEN 9223372036854775807 THEN 'infinity'
    WHEN -9223372036854775808 THEN '-infinity'
    ELSE '1970-01-01 00:00:00+00'::timestamptz
      + $1 / 1000000 * interval '1 second' + $1 % 1000000 * interval '1 microsecond'
  END
$$;
CREATE FUNCTION timestamp_of_micros(bigint) RETURNS timestamp
LANGUAGE sql IMMUTABLE STRICT AS $$ SELECT timestamptz_of_micros($1) AT TIME ZONE 'UTC' $$;
CREATE CAST (bigint AS timestamptz) WITH FUNCTION timestamptz_of_micros(bigint) AS ASSIGNMENT;
CREATE CAST (bigint AS timestamp) WITH FUNCTION timestamp_of_micros(bigint) AS ASSIGNMENT;
