"""Query the Delta tables that the Spark job makes, without Spark: Polars and DuckDB.

    python examples/delta_tables.py warehouse/s1/public/t1

`pip install deltalake polars duckdb`. deltalake's QueryBuilder reads what Polars' and DuckDB's own
Delta readers do not: columns that were renamed or dropped, and deletion vectors.
"""

import sys
from typing import Any

import duckdb
import polars
from deltalake import DeltaTable, QueryBuilder


def rows(path: str, query: str = "SELECT * FROM t") -> Any:
    """The rows of a query on table t, as a stream of Arrow batches that can be read once."""
    return QueryBuilder().register("t", DeltaTable(path)).execute(query)


def main() -> None:
    """Show the table in Polars, and what DuckDB counts."""
    (path,) = sys.argv[1:]

    print(polars.DataFrame(rows(path)))

    print(duckdb.from_arrow(rows(path)).query("t", "SELECT count(*) AS counted FROM t"))


if __name__ == "__main__":
    main()
