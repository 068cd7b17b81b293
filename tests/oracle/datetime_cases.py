"""The functions of dates, times and intervals: how SQL calls them, and with which types."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GROUPS", "Case"]


@dataclass(frozen=True, slots=True)
class Case:
    """A function: its key, how it is called with the arguments {0}, {1}, ..., and its types."""

    key: str
    sql: str
    arguments: tuple[str, ...]
    result: str


def case(key: str, sql: str, arguments: str, result: str) -> Case:
    return Case(key, sql, tuple(arguments.split()), result)


def comparisons() -> list[Case]:
    found = []
    operators = {"eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
    for kind in ("date", "time", "timetz", "timestamp", "interval"):
        both = f"{kind} {kind}"
        for suffix, sign in operators.items():
            found.append(case(f"{kind}_{suffix}", f"{{0}} {sign} {{1}}", both, "bool"))
        found.append(case(f"{kind}_cmp", f"{kind}_cmp({{0}}, {{1}})", both, "int4"))
        found += [
            case(f"{kind}_{which}", f"{kind}_{which}({{0}}, {{1}})", both, kind)
            for which in ("larger", "smaller")
        ]
    found += [
        case("date_finite", "isfinite({0})", "date", "bool"),
        case("timestamp_finite", "isfinite({0})", "timestamp", "bool"),
        case("interval_finite", "isfinite({0})", "interval", "bool"),
    ]
    return found


DAYS = """CASE {0} WHEN 'infinity' THEN 2147483647 WHEN '-infinity' THEN -2147483648
    ELSE {0} - date '2000-01-01' END"""
"""A date as a number: before 18, dates were hashed by the function of integers."""

GROUPS: dict[str, list[Case]] = {
    "comparisons": comparisons(),
    "arithmetic": [
        case("date_pli", "{0} + {1}", "date int4", "date"),
        case("date_mii", "{0} - {1}", "date int4", "date"),
        case("integer_pl_date(int4,date)", "{0} + {1}", "int4 date", "date"),
        case("date_mi", "{0} - {1}", "date date", "int4"),
        case("date_pl_interval", "{0} + {1}", "date interval", "timestamp"),
        case("date_mi_interval", "{0} - {1}", "date interval", "timestamp"),
        case("interval_pl_date(interval,date)", "{0} + {1}", "interval date", "timestamp"),
        case("datetime_timestamp", "{0} + {1}", "date time", "timestamp"),
        case("timedate_pl(time,date)", "{0} + {1}", "time date", "timestamp"),
        case("datetimetz_timestamptz", "{0} + {1}", "date timetz", "timestamptz"),
        case("timetzdate_pl(timetz,date)", "{0} + {1}", "timetz date", "timestamptz"),
        case("timestamp_pl_interval", "{0} + {1}", "timestamp interval", "timestamp"),
        case("timestamp_mi_interval", "{0} - {1}", "timestamp interval", "timestamp"),
        case("interval_pl_timestamp(interval,timestamp)", "{0} + {1}", "interval timestamp",
             "timestamp"),
        case("timestamp_mi", "{0} - {1}", "timestamp timestamp", "interval"),
        case("timestamp_age", "age({0}, {1})", "timestamp timestamp", "interval"),
        case("time_pl_interval", "{0} + {1}", "time interval", "time"),
        case("time_mi_interval", "{0} - {1}", "time interval", "time"),
        case("interval_pl_time(interval,time)", "{0} + {1}", "interval time", "time"),
        case("timetz_pl_interval", "{0} + {1}", "timetz interval", "timetz"),
        case("timetz_mi_interval", "{0} - {1}", "timetz interval", "timetz"),
        case("interval_pl_timetz(interval,timetz)", "{0} + {1}", "interval timetz", "timetz"),
        case("time_mi_time", "{0} - {1}", "time time", "interval"),
        case("timestamp_bin", "date_bin({0}, {1}, {2})", "interval timestamp timestamp",
             "timestamp"),
    ],
    "intervals": [
        case("interval_um", "- {0}", "interval", "interval"),
        case("interval_pl", "{0} + {1}", "interval interval", "interval"),
        case("interval_mi", "{0} - {1}", "interval interval", "interval"),
        case("interval_mul", "{0} * {1}", "interval float8", "interval"),
        case("mul_d_interval", "{0} * {1}", "float8 interval", "interval"),
        case("interval_div", "{0} / {1}", "interval float8", "interval"),
        case("interval_justify_hours", "justify_hours({0})", "interval", "interval"),
        case("interval_justify_days", "justify_days({0})", "interval", "interval"),
        case("interval_justify_interval", "justify_interval({0})", "interval", "interval"),
        case("interval_scale", '"interval"({0}, {1})', "interval int4", "interval"),
        case("make_interval", "make_interval({0}, {1}, {2}, {3}, {4}, {5}, {6})",
             "int4 int4 int4 int4 int4 int4 float8", "interval"),
        case("interval_trunc", "date_trunc({0}, {1})", "unit interval", "interval"),
        case("extract_interval", "pg_catalog.extract({0}, {1})", "unit interval", "numeric"),
        case("interval_part", "date_part({0}, {1})", "unit interval", "float8"),
        case("interval_send", "interval_send({0})", "interval", "bytea"),
        case("in_range_interval_interval", "in_range({0}, {1}, {2}, {3}, {4})",
             "interval interval interval bool bool", "bool"),
    ],
    "fields": [
        case("extract_date", "pg_catalog.extract({0}, {1})", "unit date", "numeric"),
        case("extract_time", "pg_catalog.extract({0}, {1})", "unit time", "numeric"),
        case("extract_timetz", "pg_catalog.extract({0}, {1})", "unit timetz", "numeric"),
        case("extract_timestamp", "pg_catalog.extract({0}, {1})", "unit timestamp", "numeric"),
        case("date_part(text,date)", "date_part({0}, {1})", "unit date", "float8"),
        case("time_part", "date_part({0}, {1})", "unit time", "float8"),
        case("timetz_part", "date_part({0}, {1})", "unit timetz", "float8"),
        case("timestamp_part", "date_part({0}, {1})", "unit timestamp", "float8"),
        case("timestamp_trunc", "date_trunc({0}, {1})", "unit timestamp", "timestamp"),
    ],
    "casts and constructors": [
        case("date_timestamp", "{0}::timestamp", "date", "timestamp"),
        case("timestamp_date", "{0}::date", "timestamp", "date"),
        case("timestamp_time", "{0}::time", "timestamp", "time"),
        case("timetz_time", "{0}::time", "timetz", "time"),
        case("time_interval", "{0}::interval", "time", "interval"),
        case("interval_time", "{0}::time", "interval", "time"),
        case("time_scale", '"time"({0}, {1})', "time int4", "time"),
        case("timetz_scale", '"timetz"({0}, {1})', "timetz int4", "timetz"),
        case("timestamp_scale", '"timestamp"({0}, {1})', "timestamp int4", "timestamp"),
        case("make_date", "make_date({0}, {1}, {2})", "int4 int4 int4", "date"),
        case("make_time", "make_time({0}, {1}, {2})", "int4 int4 float8", "time"),
        case("make_timestamp", "make_timestamp({0}, {1}, {2}, {3}, {4}, {5})",
             "int4 int4 int4 int4 int4 float8", "timestamp"),
        case("float8_timestamptz", "to_timestamp({0})", "float8", "timestamptz"),
        case("timestamp_izone", "{1} AT TIME ZONE {0}", "interval timestamp", "timestamptz"),
        case("timestamptz_izone", "({1}::timestamptz) AT TIME ZONE {0}", "interval timestamp",
             "timestamp"),
        case("timestamptz_zone", "{1} AT TIME ZONE {0}", "zone timestamptz", "timestamp"),
        case("timestamp_zone", "{1} AT TIME ZONE {0}", "zone timestamp", "timestamptz"),
        case("timestamptz_pl_interval_at_zone", "date_add({0}, {1}, {2})",
             "timestamptz interval zone", "timestamptz"),
        case("timestamptz_mi_interval_at_zone", "date_subtract({0}, {1}, {2})",
             "timestamptz interval zone", "timestamptz"),
        case("timestamptz_trunc_zone", "date_trunc({0}, {1}, {2})", "unit timestamptz zone",
             "timestamptz"),
        case("timestamptz_bin", "date_bin({0}, {1}, {2})", "interval timestamptz timestamptz",
             "timestamptz"),
        case("timetz_izone", "{1} AT TIME ZONE {0}", "interval timetz", "timetz"),
        case("date_send", "date_send({0})", "date", "bytea"),
        case("time_send", "time_send({0})", "time", "bytea"),
        case("timetz_send", "timetz_send({0})", "timetz", "bytea"),
        case("timestamp_send", "timestamp_send({0})", "timestamp", "bytea"),
    ],
    "hashes": [
        *(
            case(f"{kind}_hash", f"{kind}_hash({{0}})", kind, "int4")
            for kind in ("time", "timetz", "timestamp", "interval")
        ),
        *(
            case(f"{kind}_hash_extended", f"{kind}_hash_extended({{0}}, {{1}})", f"{kind} int8",
                 "int8")
            for kind in ("time", "timetz", "timestamp", "interval")
        ),
        case("hashdate", f"hashint4({DAYS})", "date", "int4"),
        case("hashdateextended", f"hashint4extended({DAYS}, {{1}})", "date int8",
             "int8"),
    ],
    "periods": [
        case("overlaps_time", "({0}, {1}) OVERLAPS ({2}, {3})", "time time time time", "bool"),
        case("overlaps_timetz", "({0}, {1}) OVERLAPS ({2}, {3})", "timetz timetz timetz timetz",
             "bool"),
        case("overlaps_timestamp", "({0}, {1}) OVERLAPS ({2}, {3})",
             "timestamp timestamp timestamp timestamp", "bool"),
        *(
            case(f"overlaps({kind},{first},{kind},{second})", "({0}, {1}) OVERLAPS ({2}, {3})",
                 f"{kind} {first} {kind} {second}", "bool")
            for kind in ("time", "timestamp")
            for first, second in (("interval", "interval"), (kind, "interval"), ("interval", kind))
        ),
        case("in_range_date_interval", "in_range({0}, {1}, {2}, {3}, {4})",
             "date date interval bool bool", "bool"),
        case("in_range_time_interval", "in_range({0}, {1}, {2}, {3}, {4})",
             "time time interval bool bool", "bool"),
        case("in_range_timetz_interval", "in_range({0}, {1}, {2}, {3}, {4})",
             "timetz timetz interval bool bool", "bool"),
        case("in_range_timestamp_interval", "in_range({0}, {1}, {2}, {3}, {4})",
             "timestamp timestamp interval bool bool", "bool"),
    ],
}  # fmt: skip
