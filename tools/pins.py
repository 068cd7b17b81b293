"""Pin actions by commit and images by digest: ``make pins``, or ``python tools/pins.py check``.

Without an argument it asks for what the tags mean now: git for the newest tag of an action's major
version, docker for the digest of an image, and writes both beside the tag. What cannot be reached
is left as it is and named. ``check`` asks nobody and names what has no pin: a release refuses it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
WORKFLOWS: Final = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
IMAGES: Final = (ROOT / "Dockerfile", ROOT / "docker-compose.yml")
_ACTION: Final = re.compile(
    r"(?P<before>uses: )(?P<name>[\w.-]+/[\w./-]+)@(?P<pin>\S+)(?P<after>.*)"
)
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_VERSION: Final = re.compile(r" # (v\d+(?:\.\d+)*)$")
_IMAGE: Final = re.compile(
    r"^(?P<before># syntax=|FROM |ARG \w+=|\s+image: )"
    r"(?P<name>[a-z][\w./-]*:[\w.-]+)(?P<digest>@sha256:[0-9a-f]{64})?",
    re.MULTILINE,
)


def unpinned_actions(text: str) -> Iterator[str]:
    """Yield the actions of a workflow without a commit, or without the tag that it had."""
    for found in _ACTION.finditer(text):
        if not (_COMMIT.fullmatch(found["pin"]) and _VERSION.search(found["after"])):
            yield f"{found['name']}@{found['pin']}"


def unpinned_images(text: str) -> Iterator[str]:
    """Yield the images of a Dockerfile or a compose file that have a tag and no digest."""
    for found in _IMAGE.finditer(text):
        if found["digest"] is None:
            yield found["name"]


def pin_actions(text: str, ask: Callable[[str, str], tuple[str, str] | None]) -> str:
    """Return the workflow with newer commits.

    Args:
        text: Of the workflow.
        ask: Takes a repository and a major version like ``v4``; returns the commit and the tag that
            it is known by, or None when it does not answer.
    """

    def pinned(found: re.Match[str]) -> str:
        version = _VERSION.search(found["after"])
        major = (version[1] if version else found["pin"]).partition(".")[0]
        answer = ask("/".join(found["name"].split("/")[:2]), major)
        if answer is None:
            return found[0]
        return f"{found['before']}{found['name']}@{answer[0]} # {answer[1]}"

    return _ACTION.sub(pinned, text)


def pin_images(text: str, ask: Callable[[str], str | None]) -> str:
    """Return the file with the digests that the tags have now.

    Args:
        text: Of a Dockerfile or a compose file.
        ask: Takes ``name:tag``; returns ``sha256:...``, or None when it does not answer.
    """

    def pinned(found: re.Match[str]) -> str:
        digest = ask(found["name"])
        return found[0] if digest is None else f"{found['before']}{found['name']}@{digest}"

    return _IMAGE.sub(pinned, text)


def newest(listing: str, major: str) -> tuple[str, str] | None:
    """Return commit and name of the highest tag of a major version in ``git ls-remote --tags``."""
    commits: dict[tuple[int, ...], tuple[str, str]] = {}
    for line in listing.splitlines():
        commit, _, name = line.partition("\trefs/tags/")
        tag = name.removesuffix("^{}")
        if re.fullmatch(rf"{major}(\.\d+){{1,2}}", tag):
            number = tuple(int(part) for part in tag[1:].split("."))
            # The peeled line of an annotated tag comes second, and names the commit.
            commits[number] = (commit, tag)
    return commits[max(commits)] if commits else None


def _ask_git(repository: str, major: str) -> tuple[str, str] | None:
    listing = _said(["git", "ls-remote", "--tags", f"https://github.com/{repository}"])
    return None if listing is None else newest(listing, major)


def _ask_docker(name: str) -> str | None:
    template = "{{.Manifest.Digest}}"
    said = _said(["docker", "buildx", "imagetools", "inspect", name, "--format", template])
    return said.strip() if said and re.fullmatch(r"sha256:[0-9a-f]{64}", said.strip()) else None


def _said(command: list[str]) -> str | None:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def check() -> int:
    """Name what has no pin; 1 when there is something."""
    missing = [each for path in WORKFLOWS for each in unpinned_actions(path.read_text())]
    missing += [each for path in IMAGES for each in unpinned_images(path.read_text())]
    for each in sorted(set(missing)):
        print(f"pins: {each} has no commit or digest; `make pins` writes it", file=sys.stderr)
    return 1 if missing else 0


def refresh() -> int:
    """Write the pins; 1 when something could not be asked."""
    failed: set[str] = set()

    def action(repository: str, major: str) -> tuple[str, str] | None:
        answer = _ask_git(repository, major)
        if answer is None:
            failed.add(repository)
        return answer

    def image(name: str) -> str | None:
        digest = _ask_docker(name)
        if digest is None:
            failed.add(name)
        return digest

    for path in WORKFLOWS:
        path.write_text(pin_actions(path.read_text(), action))
    for path in IMAGES:
        path.write_text(pin_images(path.read_text(), image))
    for name in sorted(failed):
        print(f"pins: {name} could not be looked up and is as it was", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(check() if sys.argv[1:] == ["check"] else refresh())
