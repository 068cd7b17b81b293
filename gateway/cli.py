"""The command `pgsluice`.

Exit codes: 0 stopped or done, 1 failed and a person must act, 2 usage, 75 gave up on something that
may pass (EX_TEMPFAIL).
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

from gateway import calls
from gateway.core.display import lines_shown
from gateway.core.errors import FatalError, GatewayError, TransientError, UsageError
from gateway.core.lsn import Lsn, parse_lsn
from gateway.observe import LogFormat, event, set_up_logging

__all__ = ["command_line", "main"]

_LOG: Final = logging.getLogger(__name__)

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_GAVE_UP: Final = 75


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    parser = command_line()
    given = sys.argv[1:] if argv is None else argv
    if given and given[0].startswith("--") and given[0] not in ("--help", "--version"):
        parser.error(f"options come after the command, as in: pgsluice check {given[0]} ...")
    arguments = parser.parse_args(given)
    set_up_logging(verbose=arguments.verbose)
    command: Callable[[argparse.Namespace], int] = arguments.command
    try:
        return command(arguments)
    except TransientError as error:
        return _fail(error, EXIT_GAVE_UP, arguments.form)
    except UsageError as error:
        return _fail(error, EXIT_USAGE, arguments.form)
    except FatalError as error:
        return _fail(error, EXIT_FAILED, arguments.form)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 0  # the reader of our output has had enough


def _fail(error: GatewayError, code: int, form: LogFormat) -> int:
    if form == "json":
        event(_LOG, logging.ERROR, error.message, hint=error.hint, exit_code=code)
    else:
        print(f"pgsluice: {lines_shown(error)}", file=sys.stderr)
    return code


def _completion(arguments: argparse.Namespace) -> int:
    from gateway.commands.completion import completion

    return completion(command_line(), arguments.shell)


@cache
def command_line() -> argparse.ArgumentParser:
    """The parser of all commands; declaring their arguments takes 25 ms."""
    parser = argparse.ArgumentParser(
        prog="pgsluice",
        description="PostgreSQL tables, filtered by row, through Kafka into lakehouse tables.",
        epilog="Exit codes: 0 stopped or done; 1 failed, a person must act; 2 usage; "
        "75 gave up on something that may pass.",
    )
    parser.add_argument("--version", action="version", version=f"pgsluice {version('pgsluice')}")
    parser.set_defaults(verbose=False, form="text")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    demo = commands.add_parser(
        "demo", help="run the whole path on local servers and check the result"
    )
    demo.add_argument("--keep", action="store_true", help="leave everything running at the end")
    demo.add_argument(
        "--postgres", type=int, choices=(16, 18), default=18, help="major version (default 18)"
    )
    demo.set_defaults(command=calls.call_demo)

    _add_init(commands)
    run = _configured(
        commands, "run", calls.call_run, "run the gateway daemon, which publishes changes to Kafka"
    )
    _add_endpos(run, "publish every transaction that ends at or before LSN, then stop")

    consume = _configured(
        commands,
        "consume",
        calls.call_consume,
        "run the Spark job, which rebuilds the tables in Delta Lake or Iceberg",
    )
    tables = _configured(
        commands,
        "tables",
        calls.call_tables,
        "list the rebuilt tables, with version, rows and last change",
    )
    verify = _configured(
        commands,
        "verify",
        calls.call_verify,
        "compare the rebuilt tables with the source as of one LSN",
    )
    for command in (consume, tables, verify):
        command.add_argument(
            "--subscription",
            action="append",
            default=[],
            metavar="NAME",
            help="only this one; can be given several times (default: all that are defined)",
        )
    _add_endpos(consume, "stop when all subscriber tables are complete until LSN")
    tables.add_argument(
        "--at", metavar="LSN|TIME", help="as they were at that point (default: now)"
    )
    tables.add_argument(
        "--json", action="store_true", help="print a JSON object in one line for each subscription"
    )

    verify.add_argument(
        "--table",
        action="append",
        default=[],
        metavar="TABLE",
        help="only this one; can be given several times",
    )
    verify.add_argument(
        "--native", metavar="DSN", help="compare with a native subscriber's tables instead"
    )
    verify.add_argument(
        "--timeout",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="how long to wait for the tables (default 600)",
    )

    check = _configured(
        commands, "check", calls.call_check, "find what would go wrong, and say what to do about it"
    )
    check.add_argument(
        "--sql",
        action="store_true",
        help="print only the statements that an owner of the tables has to run",
    )
    schemas = _configured(
        commands, "schemas", calls.call_schemas, "print the Avro schemas that will be registered"
    )
    schemas.add_argument(
        "--asyncapi", action="store_true", help="as an AsyncAPI 3 document of all topics"
    )
    status = _configured(
        commands,
        "status",
        calls.call_status,
        "show the slot, the watermark, the tables and any problems; exits with 0 when all is well, "
        "1 when a person must act, 75 when it may clear up by itself",
    )
    status.add_argument("--json", action="store_true", help="print one JSON object on one line")
    status.add_argument(
        "--watch",
        type=_seconds,
        nargs="?",
        const=2.0,
        metavar="SECONDS",
        help="print it again every SECONDS (default 2) until interrupted",
    )
    reload = _configured(
        commands,
        "reload",
        calls.call_reload,
        "make the running gateway take up changed definitions",
    )
    copy = _configured(
        commands,
        "copy",
        calls.call_copy,
        "make the running gateway copy a table, or part of one, again",
    )
    copy.add_argument("table", nargs="?", metavar="TABLE", help="TABLE or SCHEMA.TABLE")
    copy.add_argument(
        "--where",
        metavar="CONDITION",
        help="copy only these rows; they replace what consumers have",
    )
    copy.add_argument(
        "--cancel",
        action="store_true",
        help="cancel requests for this table; without TABLE, for all",
    )
    resume = _configured(
        commands, "resume", calls.call_copy, "copy a held table; the same as copy TABLE"
    )
    resume.add_argument("table", metavar="TABLE", help="TABLE or SCHEMA.TABLE")
    resume.set_defaults(where=None, cancel=False)
    for command in (copy, resume):
        command.add_argument(
            "--subscription", metavar="NAME", help="for this one only (default: all)"
        )
        command.add_argument(
            "--no-wait",
            action="store_false",
            dest="wait",
            help="return as soon as the gateway has taken the request",
        )
        command.set_defaults(usage=command.error)
    for command in (copy, resume, reload):
        command.add_argument(
            "--timeout",
            type=float,
            default=600.0,
            metavar="SECONDS",
            help="how long to wait before giving up (default 600)",
        )
    for command in (run, reload, copy, resume):
        _add_group(command)
    _add_looking(commands)
    takeover = _configured(
        commands,
        "takeover",
        calls.call_takeover,
        "write to topics that have been another gateway's from now on; their tables are copied",
    )
    takeover.add_argument("subscription", nargs="+", metavar="SUBSCRIPTION")
    _add_group(takeover)
    slot = commands.add_parser("slot", help="manage the replication slot")
    slot_commands = slot.add_subparsers(title="commands", metavar="COMMAND", required=True)
    slot_drop = _configured(
        slot_commands,
        "drop",
        calls.call_slot_drop,
        "drop the slot and forget the watermark, after a question; the next run copies all tables "
        "again",
    )
    help_ = "print the completion of commands and options for a shell"
    completion = commands.add_parser("completion", help=help_, description=help_)
    completion.add_argument("shell", choices=("bash", "fish", "zsh"))
    completion.set_defaults(command=_completion)
    _add_group(slot_drop)
    slot_drop.add_argument(
        "--force",
        action="store_true",
        help="even when Kafka has no record that the slot is this gateway's",
    )
    slot_drop.add_argument("--yes", action="store_true", help="ask nothing")
    slot_drop.add_argument(
        "--system-identifier",
        metavar="NUMBER",
        help="forget the watermark of another server, whose place this one takes; drop nothing",
    )
    return parser


def _add_init(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    help_ = "write a commented configuration and definitions for a database"
    init = commands.add_parser("init", help=help_, description=help_)
    init.add_argument("dsn", metavar="DSN", help="connection string or URI of the database")
    init.add_argument(
        "--folder",
        type=Path,
        default=Path(),
        metavar="FOLDER",
        help="where to write them (default: here)",
    )
    init.add_argument(
        "--subscription", metavar="NAME", help="first part of every topic (default: the database)"
    )
    init.add_argument(
        "--kafka", default="localhost:9092", metavar="HOST:PORT", help="bootstrap.servers"
    )
    init.add_argument(
        "--registry", default="http://localhost:8081", metavar="URL", help="schema registry"
    )
    init.set_defaults(command=calls.call_init)


def _add_looking(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    tail = _configured(commands, "tail", calls.call_tail, "print changes as they are published")
    tail.add_argument("what", metavar="SUBSCRIPTION[.TABLE]", help="s, s.t, or s.schema.t")
    begin = tail.add_mutually_exclusive_group()
    begin.add_argument(
        "--from-beginning", action="store_true", help="start with the changes already in Kafka"
    )
    begin.add_argument(
        "--since",
        type=_lsn_or_time,
        metavar="LSN|TIME",
        help="start with the transactions that committed then or later",
    )
    tail.add_argument(
        "--no-follow",
        action="store_true",
        help="stop after the last change instead of waiting for more",
    )
    tail.add_argument("--limit", type=_number, metavar="N", help="stop after this many changes")
    tail.add_argument("--json", action="store_true", help="print one JSON object for each change")
    explain = _configured(
        commands,
        "explain",
        calls.call_explain,
        "say which subscriptions receive a row, filter by filter",
    )
    explain.add_argument("table", metavar="TABLE", help="TABLE or SCHEMA.TABLE")
    explain.add_argument(
        "row",
        metavar="ROW",
        help="'(1,NSW)' as PostgreSQL writes it, '{\"a\": 1}', or the key of a row that is there: "
        "'1', 'a=1,c=NSW'",
    )


def _configured(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    command: Callable[[argparse.Namespace], int],
    help_: str,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=help_, description=help_)
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="the TOML configuration (default: what PGSLUICE_CONFIG names, pgsluice.toml in this "
        "folder, or /etc/pgsluice/pgsluice.toml)",
    )
    parser.add_argument("--verbose", action="store_true", help="log in more detail")
    parser.set_defaults(command=command)
    return parser


def _add_group(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--group", metavar="NAME", help="which of [source] groups")


def _add_endpos(parser: argparse.ArgumentParser, help_: str) -> None:
    parser.add_argument("--endpos", type=_lsn, metavar="LSN", help=help_)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise argparse.ArgumentTypeError(f"not a number of seconds: {text!r}")
    return seconds


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text[:20]) > 0):
        raise argparse.ArgumentTypeError(f"not a number of 1 or more: {text!r}")
    return int(text)


def _lsn_or_time(text: str) -> tuple[Lsn | None, datetime | None]:
    if "/" in text:
        return _lsn(text), None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        reason = f"neither an LSN nor a time, as 16/B374D848 or 2026-03-01 10:00: {text!r}"
        raise argparse.ArgumentTypeError(reason) from None
    return None, time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _lsn(text: str) -> Lsn:
    try:
        return parse_lsn(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


if __name__ == "__main__":
    sys.exit(main())
