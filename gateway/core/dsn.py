"""Connection string of a server, with the command that prints its password."""

from __future__ import annotations

from typing import Self

__all__ = ["Dsn"]


class Dsn(str):
    """libpq connection string.

    Attributes:
        password_command: Command whose output is the password of each new connection; None for the
            password that libpq finds.
    """

    password_command: str | None

    def __new__(cls, text: str, password_command: str | None = None) -> Self:
        """Make one; `text` may be another one, whose command is not kept."""
        made = super().__new__(cls, text)
        made.password_command = password_command
        return made

    @staticmethod
    def command_of(text: str) -> str | None:
        """Return the command of a connection string, which may be an ordinary text."""
        return text.password_command if isinstance(text, Dsn) else None
