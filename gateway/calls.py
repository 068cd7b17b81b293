"""Calls of the commands, with what the command line has given."""

from __future__ import annotations

import argparse
from importlib.util import find_spec

from gateway.config import Settings, choose_group, each_group, load_settings
from gateway.core.errors import ConfigError, UsageError
from gateway.observe import set_up_logging

__all__ = [
    "call_check",
    "call_consume",
    "call_copy",
    "call_demo",
    "call_explain",
    "call_init",
    "call_reload",
    "call_run",
    "call_schemas",
    "call_slot_drop",
    "call_status",
    "call_tables",
    "call_tail",
    "call_takeover",
    "call_verify",
]


def _settings(arguments: argparse.Namespace) -> Settings:
    """Read the configuration; from here on log lines look as it says."""
    settings = load_settings(arguments.config)
    if settings.log.format != arguments.form:
        arguments.form = settings.log.format
        set_up_logging(verbose=arguments.verbose, log_format=arguments.form)
    return settings


def _gateway(arguments: argparse.Namespace) -> Settings:
    """As `_settings`; of one group where there are groups."""
    return choose_group(_settings(arguments), arguments.group)


def _require_spark() -> None:
    """Check that the extra is installed, before modules of the job are imported.

    Raises:
        ConfigError: it is not.
    """
    if find_spec("pyspark") is None:
        raise ConfigError(
            "this command needs the Spark job's packages, and pyspark is not installed",
            hint="install the extra: in a clone pip install '.[spark]', "
            "of a wheel pip install './FILE.whl[spark]'",
        )


def call_run(arguments: argparse.Namespace) -> int:
    """Run `pgsluice run`; return the exit code."""
    from gateway.commands.run import run

    return run(_gateway(arguments), endpos=arguments.endpos)


def call_consume(arguments: argparse.Namespace) -> int:
    """Run `pgsluice consume`; return the exit code."""
    _require_spark()
    from gateway.commands.consume import consume

    return consume(
        _settings(arguments),
        subscriptions=arguments.subscription,
        endpos=arguments.endpos,
    )


def call_tables(arguments: argparse.Namespace) -> int:
    """Run `pgsluice tables`; return the exit code."""
    _require_spark()
    from gateway.commands.consume import show_tables

    return show_tables(
        _settings(arguments),
        subscriptions=arguments.subscription,
        at=arguments.at,
        as_json=arguments.json,
    )


def call_verify(arguments: argparse.Namespace) -> int:
    """Run `pgsluice verify`; return the exit code."""
    _require_spark()
    from gateway.commands.verify.command import verify

    return verify(
        _settings(arguments),
        subscriptions=arguments.subscription,
        tables=arguments.table,
        native=arguments.native,
        timeout_s=arguments.timeout,
    )


def call_check(arguments: argparse.Namespace) -> int:
    """Run `pgsluice check`; return the exit code."""
    from gateway.commands.check.command import check, print_statements

    if arguments.sql:
        return max(print_statements(settings) for settings in each_group(_settings(arguments)))
    return max(check(settings) for settings in each_group(_settings(arguments)))


def call_schemas(arguments: argparse.Namespace) -> int:
    """Run `pgsluice schemas`; return the exit code."""
    from gateway.commands.schemas import show_schemas

    return show_schemas(_settings(arguments), asyncapi=arguments.asyncapi)


def call_status(arguments: argparse.Namespace) -> int:
    """Run `pgsluice status`; return the exit code."""
    from gateway.commands.status import show_status

    gateways = each_group(_settings(arguments))
    return show_status(gateways, as_json=arguments.json, every_s=arguments.watch)


def call_init(arguments: argparse.Namespace) -> int:
    """Run `pgsluice init`; return the exit code."""
    from gateway.commands.init import init

    return init(
        arguments.dsn,
        arguments.folder,
        subscription=arguments.subscription,
        kafka=arguments.kafka,
        registry=arguments.registry,
    )


def call_tail(arguments: argparse.Namespace) -> int:
    """Run `pgsluice tail`; return the exit code."""
    from gateway.commands.tail.command import tail
    from gateway.sink.reading.commit_order import Since

    lsn, time = arguments.since or (None, None)
    return tail(
        _settings(arguments),
        arguments.what,
        from_beginning=arguments.from_beginning,
        since=None if arguments.since is None else Since(lsn, time),
        to_end=arguments.no_follow,
        limit=arguments.limit,
        as_json=arguments.json,
    )


def call_explain(arguments: argparse.Namespace) -> int:
    """Run `pgsluice explain`; return the exit code."""
    from gateway.commands.explain import explain

    return explain(_settings(arguments), arguments.table, arguments.row)


def call_reload(arguments: argparse.Namespace) -> int:
    """Run `pgsluice reload`; return the exit code."""
    from gateway.commands.reload import reload

    return reload(_gateway(arguments), timeout_s=arguments.timeout)


def call_copy(arguments: argparse.Namespace) -> int:
    """Run `pgsluice copy` and `pgsluice resume`; return the exit code."""
    from gateway.commands.copy import copy

    if arguments.table is None and not arguments.cancel:
        arguments.usage("TABLE is required, but for --cancel")
    if arguments.cancel and arguments.where is not None:
        arguments.usage("--cancel takes no --where")
    return copy(
        choose_group(load_settings(arguments.config), arguments.group),
        arguments.table,
        subscription=arguments.subscription,
        where=arguments.where or "",
        cancel=arguments.cancel,
        wait=arguments.wait,
        timeout_s=arguments.timeout,
    )


def call_slot_drop(arguments: argparse.Namespace) -> int:
    """Run `pgsluice slot drop`; return the exit code."""
    from gateway.commands.slot import drop

    return drop(
        _gateway(arguments),
        force=arguments.force,
        system_identifier=arguments.system_identifier,
        yes=arguments.yes,
    )


def call_takeover(arguments: argparse.Namespace) -> int:
    """Run `pgsluice takeover`; return the exit code."""
    from gateway.commands.takeover import takeover

    return takeover(_gateway(arguments), arguments.subscription)


def call_demo(arguments: argparse.Namespace) -> int:
    """Run `pgsluice demo`; return the exit code."""
    try:
        from devkit.demo.main import demo
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "devkit":
            raise
        raise UsageError(
            "the demo is not part of this installation",
            hint="images for production leave it out; run `make demo` in a checkout",
        ) from error

    return demo(keep=arguments.keep, postgres_major=arguments.postgres)
