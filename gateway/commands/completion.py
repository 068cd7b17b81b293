"""``pgsluice completion``: completion for shells, made of the declaration of the commands.

A script names all commands and options, so that a shell completes without starting the program. It
is of one release: a package that installs it makes it again for each.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["completion"]


@dataclass(frozen=True, slots=True)
class _Option:
    """An option of a command.

    Attributes:
        names: ``-h`` and ``--help``, for example.
        value: Name of its value; None if it has none.
        is_path: Whether the value is a file or folder.
        words: Possible values, as far as they are known.
    """

    names: Sequence[str]
    help: str
    value: str | None
    is_path: bool
    words: Sequence[str]


@dataclass(frozen=True, slots=True)
class _Command:
    """A command.

    Attributes:
        path: Words that name it, the program's name first.
        words: Next words with descriptions: commands, or possible values of its argument.
    """

    path: Sequence[str]
    words: Sequence[tuple[str, str]]
    options: Sequence[_Option]
    children: Sequence[_Command]

    def all(self) -> Iterator[_Command]:
        """Yield the command and those under it."""
        yield self
        for child in self.children:
            yield from child.all()


def completion(parser: argparse.ArgumentParser, shell: str) -> int:
    """Print the completion of a program for a shell: bash, fish or zsh."""
    command = _command(parser, (parser.prog,))
    lines = {"bash": _bash, "fish": _fish, "zsh": _zsh}[shell](command)
    print("\n".join(lines))
    return 0


def _command(parser: argparse.ArgumentParser, path: Sequence[str]) -> _Command:
    words: list[tuple[str, str]] = []
    options, children = [], []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {one.dest: one.help or "" for one in action._choices_actions}
            for name, child in action.choices.items():
                words.append((name, helps[name]))
                children.append(_command(child, (*path, name)))
        elif action.option_strings:
            value = None if action.nargs == 0 else str(action.metavar or action.dest)
            known = [str(choice) for choice in action.choices or ()]
            is_path = action.type is Path
            helped = action.help or ""
            options.append(_Option(action.option_strings, helped, value, is_path, known))
        else:
            words += [(str(choice), "") for choice in action.choices or ()]
    return _Command(path, words, options, children)


def _bash(program: _Command) -> Iterator[str]:
    """Source: "Programmable Completion" in Bash's manual; works from version 3.2 on."""
    name = program.path[0]
    yield f"# bash completion of {name}: source it, or put it into bash-completion's folder"
    yield f"_{name}() {{"
    yield "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}"
    yield f"    local path={name} words options i IFS=$'\\n'"
    yield "    COMPREPLY=()"
    yield "    for ((i = 1; i < COMP_CWORD; i++)); do"
    yield '        case "$path ${COMP_WORDS[i]}" in'
    known = "|".join(
        _quoted(" ".join(child.path)) for command in program.all() for child in command.children
    )
    yield f'            {known}) path+=" ${{COMP_WORDS[i]}}" ;;'
    yield "        esac"
    yield "    done"
    yield '    case "$path $previous" in'
    for command in program.all():
        for option in command.options:
            if option.value is None:
                continue
            places = "|".join(_quoted(" ".join((*command.path, one))) for one in option.names)
            if option.is_path:
                reply = 'COMPREPLY=($(compgen -f -- "$current")); compopt -o filenames 2>/dev/null;'
            else:
                listed = "\\n".join(option.words)
                reply = f"COMPREPLY=($(compgen -W $'{listed}' -- \"$current\"));" if listed else ""
            yield f"        {places}) {reply} return ;;".replace("  return", " return")
    yield "    esac"
    yield '    case "$path" in'
    for command in program.all():
        words = "\\n".join(word for word, _ in command.words)
        options = "\\n".join(one for option in command.options for one in option.names)
        yield f"        {_quoted(' '.join(command.path))}) words=$'{words}' options=$'{options}' ;;"
    yield "    esac"
    yield "    [[ $current == -* ]] && words=$options"
    yield '    COMPREPLY=($(compgen -W "$words" -- "$current"))'
    yield "}"
    yield f"complete -F _{name} {name}"


def _fish(program: _Command) -> Iterator[str]:
    """Source: "Writing your own completions" in fish's manual."""
    name = program.path[0]
    yield f"# fish completion of {name}: put it into ~/.config/fish/completions/{name}.fish"
    yield f"function __{name}_at --description 'Whether exactly these words have been given'"
    yield "    set -l words (commandline -opc)"
    yield "    set -e words[1]"
    yield '    test "$words" = "$argv"'
    yield "end"
    yield f"function __{name}_in --description 'Whether the command line begins with these words'"
    yield "    set -l words (commandline -opc)"
    yield "    set -e words[1]"
    yield '    string match -q -- "$argv *" "$words "'
    yield "end"
    yield f"complete -c {name} -f"
    for command in program.all():
        given = " ".join(command.path[1:])
        for word, helped in command.words:
            described = f" -d {_fish_quoted(helped)}" if helped else ""
            at = _fish_quoted(f"__{name}_at {given}".rstrip())
            yield f"complete -c {name} -n {at} -a {_fish_quoted(word)}{described}"
        inside = _fish_quoted(f"__{name}_in {given}" if given else f"__{name}_at")
        for option in command.options:
            names = [
                f"-l {one[2:]}" if one.startswith("--") else f"-s {one[1:]}" for one in option.names
            ]
            if option.is_path:
                names.append("-r -F")
            elif option.value is not None:
                names.append("-x")
            if option.words:
                names.append(f"-a {_fish_quoted(' '.join(option.words))}")
            described = f"-d {_fish_quoted(option.help)}"
            yield f"complete -c {name} -n {inside} {' '.join(names)} {described}"


def _zsh(program: _Command) -> Iterator[str]:
    """Source: "Completion System" in zsh's manual, `_arguments` and `_describe`."""
    name = program.path[0]
    yield f"#compdef {name}"
    yield f"# zsh completion of {name}: put it into a folder of $fpath as _{name}, or source it"
    for command in program.all():
        yield f"{_zsh_function(command)}() {{"
        yield "    local line state"
        yield "    local -a words_here"
        yield "    _arguments -C \\"
        for option in command.options:
            yield f"        {_zsh_option(option)} \\"
        if command.children:
            yield "        '1: :->word' '*:: :->rest'"
        elif command.words:
            yield f"        {_quoted('1:: :(' + ' '.join(word for word, _ in command.words) + ')')}"
        else:
            yield "        '*: :_message argument'"
        if command.children:
            yield "    case $state in"
            yield "        word)"
            listed = (
                _quoted(f"{word}:{helped.replace(':', chr(92) + ':')}")
                for word, helped in command.words
            )
            yield f"            words_here=({' '.join(listed)})"
            yield "            _describe -t commands command words_here ;;"
            yield "        rest)"
            yield "            case $line[1] in"
            for child in command.children:
                yield f"                {child.path[-1]}) {_zsh_function(child)} ;;"
            yield "            esac ;;"
            yield "    esac"
        yield "}"
    yield f'if [[ $funcstack[1] == _{name} ]]; then _{name} "$@"; else compdef _{name} {name}; fi'


def _zsh_function(command: _Command) -> str:
    return "_" + "_".join(command.path)


def _zsh_option(option: _Option) -> str:
    """Return an option as `_arguments` has it; it may be given again."""
    described = "".join(f"\\{one}" if one in "[]:\\" else one for one in option.help)
    value = ""
    if option.value is not None:
        action = "_files" if option.is_path else f"({' '.join(option.words)})"
        value = f":{option.value.replace(':', chr(92) + ':')}:{action if action != '()' else ' '}"
    return " ".join(_quoted(f"*{one}[{described}]{value}") for one in option.names)


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _quoted(text: str) -> str:
    """Return a text in single quotes, for a POSIX shell and for zsh."""
    return "'" + text.replace("'", "'\\''") + "'"
