"""The files that make a unit what it is: what they hold, and whether they are what systemd has loaded."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from draftworth import redact
from draftworth.hosts.base import Host, HostError
from draftworth.models import Frozen

_OWN_PLACES = ("/etc/", "/run/")  # where enablement lies; a distribution's own links do not change
_SPECIFIER = re.compile(r"%(.)")


class FileFact(Frozen):
    """One file that makes the unit what it is."""

    path: str
    kind: str
    """fragment, drop-in, environment or enablement."""
    sha256: str | None
    """Of the content, hex, links followed; None where nothing is there, and for an enablement."""
    size: int | None = None
    """Bytes."""
    mode: int | None = None
    """Permission bits."""
    target: str | None = None
    """What a symbolic link points at, as written in it."""
    changed_s: float | None = None
    """When content or attributes changed last (ctime), Unix seconds."""


# One row a file: path, target of a link, mode, size, ctime, hash; each ended by a NUL, nothing there: empty fields.
_FACTS = r"""
for path do
  printf '%s\0' "$path"
  if [ -L "$path" ]; then readlink -n -- "$path"; fi
  printf '\0'
  if [ -f "$path" ]; then
    stat -L -c %a -- "$path" | tr -d '\n'; printf '\0'
    stat -L -c %s -- "$path" | tr -d '\n'; printf '\0'
    stat -L -c %.6Z -- "$path" | tr -d '\n'; printf '\0'
    sha256sum < "$path" | cut -c1-64 | tr -d '\n'; printf '\0'
  else printf '\0\0\0\0'; fi
done
"""
_FIELDS = 6
_EXPAND = r"""IFS=; for pattern do for path in $pattern; do printf '%s\0' "$path"; done; done"""


def facts(host: Host, found: Mapping[str, Any], places: Collection[str]) -> tuple[FileFact, ...]:
    """Return the files of a unit: its own, its drop-ins, its environment files, and the links that enable it.

    Args:
        host: where.
        found: the unit's properties, from `bus.properties`.
        places: the folders that systemd reads unit files from.

    Raises:
        HostError: the host does not answer, or a file cannot be read.
    """
    kinds: dict[str, str] = {}
    if found["FragmentPath"]:
        kinds[found["FragmentPath"]] = "fragment"
    kinds |= dict.fromkeys(found["DropInPaths"], "drop-in")
    patterns = [path for path, _ in found.get("EnvironmentFiles", ())]
    if patterns:
        done = host.run(["sh", "-c", _EXPAND, "sh", *patterns])
        kinds |= dict.fromkeys(_split(done.out), "environment")
    own = [place for place in places if f"{place}/".startswith(_OWN_PLACES)]
    if own:
        names = [word for name in found["Names"] for word in ("-o", "-name", name.replace("\\", "\\\\"))][1:]
        # A place that is not there is said on standard error, which does not matter.
        done = host.run(
            ["find", *own, "-maxdepth", "2", "-type", "l", "(", *names, ")", "-print0"]  # links of .wants, aliases
        )
        for path in sorted(_split(done.out)):
            kinds.setdefault(path, "enablement")
    if not kinds:
        return ()
    done = host.run(["sh", "-c", _FACTS, "sh", *kinds])
    fields = done.out.split(b"\0")[:-1]
    if not done.ok or len(fields) != _FIELDS * len(kinds):
        raise HostError(f"the files of {found['Id']} on {host.name} cannot be read: {done.why}")
    rows = [
        [field.decode(errors="surrogateescape") for field in fields[at : at + _FIELDS]]
        for at in range(0, len(fields), _FIELDS)
    ]
    return tuple(_fact(row, kinds[row[0]]) for row in rows)


def _split(data: bytes) -> list[str]:
    return [one.decode(errors="surrogateescape") for one in data.split(b"\0") if one]


def _fact(row: list[str], kind: str) -> FileFact:
    path, target, mode, size, ctime, digest = row
    if kind == "enablement":
        return FileFact(path=path, kind=kind, sha256=None, target=target or None)
    return FileFact(
        path=path,
        kind=kind,
        sha256=digest or None,
        size=int(size) if size else None,
        mode=int(mode, 8) if mode else None,
        target=target or None,
        changed_s=float(ctime) if ctime else None,
    )


def specifiers(texts: Mapping[str, bytes | None]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the specifiers in values, and the lines they stand in; comments do not count, inside a line neither."""
    found: set[str] = set()
    uses: list[str] = []
    for data in texts.values():
        joined = ""
        for line in (data or b"").decode(errors="replace").splitlines():
            if line.lstrip().startswith(("#", ";")):
                continue
            if line.endswith("\\"):
                joined += line[:-1] + " "
                continue
            joined, whole = "", joined + line
            _, equals, value = whole.partition("=")
            here = {f"%{char}" for char in _SPECIFIER.findall(value) if char != "%"} if equals else set()
            if here:
                found |= here
                uses.append(redact.text(" ".join(whole.split())))
    return tuple(sorted(found)), tuple(uses)


def not_loaded(host: Host, found: Mapping[str, Any], places: Collection[str]) -> tuple[str, ...]:
    """Return why what is loaded is not what is on disk; nothing: it is. Args and errors as `facts`.

    NeedDaemonReload does not tell of a drop-in that is new, so the folders are looked at too.
    """
    if found["LoadState"] != "loaded":
        return ()
    lines = []
    if found.get("NeedDaemonReload"):
        lines.append("its files were edited since they were loaded")
    folders = [f"{place}/{folder}" for place in places for name in found["Names"] for folder in _drop_in_folders(name)]
    # -L: a link to /dev/null switches a drop-in off and is never loaded.
    done = host.run(["find", "-L", *folders, "-maxdepth", "1", "-name", "*.conf", "-type", "f", "-print0"])
    loaded = {path.rpartition("/")[2] for path in found["DropInPaths"]}
    new = [path for path in _split(done.out) if path.rpartition("/")[2] not in loaded]
    lines += [f"{path} is there and not loaded" for path in sorted(new)]
    return tuple(lines)


def _drop_in_folders(unit: str) -> list[str]:
    """Return the names of the folders whose drop-ins apply to a unit: its own, its template's, of its prefixes."""
    stem, _, kind = unit.rpartition(".")
    prefix, at, instance = stem.partition("@")
    words = prefix.split("-")
    prefixes = [prefix, *("-".join(words[:count]) + "-" for count in range(1, len(words)))]
    stems = [f"{one}{end}" for one in prefixes for end in ((f"@{instance}", "@") if at else ("",))]
    return [*(f"{one}.{kind}.d" for one in stems), f"{kind}.d"]
