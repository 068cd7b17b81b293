"""All measurements: ``python -m bench [--rows N] [--repeats N] [--only MEASUREMENT]``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench import (
    copy,
    encode,
    feed,
    fresh,
    groups,
    rows,
    start,
    subscriptions,
    subselects,
    tenants,
)
from bench.cases import CASES
from bench.load import CHANGES_PER_TRANSACTION
from bench.stream import measure, stop_on_sigterm
from gateway.core.errors import FatalError

_MAX_REPEATS = 15  # four slots each, of the 64 that the embedded server has


def main() -> int:
    """Run what is asked for; the exit code."""
    arguments = _parser().parse_args()
    stop_on_sigterm()
    try:
        if arguments.only in (None, "stream"):
            measure(arguments.rows, arguments.repeats, arguments.case)
        if arguments.only in (None, "encode"):
            encode.main()
        if arguments.only in (None, "rows"):
            rows.run()
        if arguments.only in (None, "subscriptions"):
            subscriptions.run()
        if arguments.only == "subselects":
            subselects.run()
        if arguments.only == "tenants":
            tenants.run(arguments.tenants, arguments.rows)
        if arguments.only in ("tables", "neighbours", "many-tables"):
            from bench.tables import run

            run(arguments.table_rows, arguments.only)
        if arguments.only == "fresh":
            names = arguments.load or tuple(fresh.CASES)
            fresh.run(
                names,
                arguments.against,
                profile=arguments.profile,
                spark=arguments.spark,
                cluster=arguments.cluster,
            )
        if arguments.only == "feed":
            feed.run(arguments.rows)
        if arguments.only == "groups":
            groups.run(arguments.rows)
        if arguments.only == "start":
            start.run(arguments.tables)
        if arguments.only == "copy":
            copy.run(arguments.table_rows)
    except FatalError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Measure, side by side in one run."
    )
    parser.add_argument(
        "--only",
        choices=(
            "stream",
            "encode",
            "rows",
            "subscriptions",
            "subselects",
            "tenants",
            "tables",
            "neighbours",
            "many-tables",
            "fresh",
            "copy",
            "feed",
            "groups",
            "start",
        ),
        help="a full slot into Kafka, the cost of encoding a row, of routing it compiled and "
        "interpreted, or of many subscriptions beside as many native ones (default: these four); "
        "or the Spark job on a large table, on one twenty times as large, on many small ones, and "
        "how long a commit takes to be seen in its tables; the "
        "copy of a table, what Kafka takes when nothing else is done, two groups beside one "
        "gateway, the start of a gateway with many empty tables, filters over other tables "
        "beside plain ones, or a gateway for tenants by either",
    )
    parser.add_argument(
        "--case",
        action="append",
        default=[],
        choices=[case.name for case in CASES],
        help="of the cases of `stream` only this one, and others that are named so (default: all)",
    )
    parser.add_argument(
        "--load",
        action="append",
        choices=tuple(fresh.CASES),
        help="for `fresh`: only these tables (default: all)",
    )
    parser.add_argument(
        "--against",
        type=Path,
        metavar="ROOT",
        help="for `fresh`: another checkout, set up, that is measured beside this one",
    )
    parser.add_argument(
        "--profile",
        action="store_true",
        help="for `fresh`: record where the time goes, which takes a JDK",
    )
    parser.add_argument(
        "--spark",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="for `fresh`: a setting of the job's Spark",
    )
    parser.add_argument(
        "--cluster",
        action="store_true",
        help="for `fresh`: the job on a cluster of two workers of one core, its tables in S3",
    )
    parser.add_argument(
        "--tables",
        type=int,
        nargs="+",
        default=(20, 500),
        metavar="N",
        help="for `start`: numbers of tables (default 20 and 500)",
    )
    parser.add_argument(
        "--tenants",
        type=int,
        default=1_000,
        metavar="N",
        help="for `tenants`: number of subscriptions (default 1,000)",
    )
    parser.add_argument(
        "--table-rows",
        type=int,
        default=5_000_000,
        metavar="N",
        help="rows of the large table (default 5,000,000)",
    )
    parser.add_argument(
        "--rows",
        type=_rows,
        default=200_000,
        metavar="N",
        help=f"changes to stream, a multiple of {CHANGES_PER_TRANSACTION} (default 200,000)",
    )
    parser.add_argument(
        "--repeats",
        type=int,
        choices=range(1, _MAX_REPEATS + 1),
        default=3,
        metavar="N",
        help=f"1 to {_MAX_REPEATS} (default 3)",
    )
    return parser


def _rows(text: str) -> int:
    rows = int(text)
    if rows < CHANGES_PER_TRANSACTION or rows % CHANGES_PER_TRANSACTION:
        raise argparse.ArgumentTypeError(f"must be a multiple of {CHANGES_PER_TRANSACTION}")
    return rows


if __name__ == "__main__":
    sys.exit(main())
