"""The shell script that puts a unit back: the one implementation of a restore that every way back uses.

The driver, the dead-man timer, the end of the trial's own unit, a failed variant and a person all start the same unit,
which runs this script until it succeeds. It needs sh, coreutils and systemctl, so that it works when the tool, its
Python or its disk are gone; it may be killed at any point and run again. Everything in it was computed from the
snapshot before the first change.
"""

import json
import shlex
from dataclasses import dataclass, field

from draftworth.services.systemd.names import Names

_SCRIPT = r"""#!/bin/sh
# Puts @UNIT@ back as it was found before the trial @TAG@. May be run by hand, any number of times.
set -u
export LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
unit=@UNIT_Q@
run=@RUN_Q@
say() { printf 'draftworth: %s\n' "$*"; }
sc() { timeout -k 5 "$wait" systemctl "$@"; }
wait=60
state() { systemctl show -p ActiveState --value "$1"; }
up() { case $(state "$1") in active|activating|reloading) return 0 ;; *) return 1 ;; esac; }
mark() { echo "$1" 2>/dev/null >"$run/state"; }
fail() { say "NOT restored yet: $*; trying again"; mark "failing $*"; exit 1; }
seconds() { read -r since rest </proc/uptime; echo "${since%%.*}"; }
# A target pulls in everything it wants: of one that stopped with the unit only the target itself comes back.
bring() { case $1 in *.target) sc start --job-mode=ignore-dependencies "$1" ;; *) sc start "$1" ;; esac; }
stop_all() { wait=@STOP_S@; sc stop @TRIGGERS@ "$unit" || sc kill -s KILL "$unit"; wait=60; }
# What an inactive unit has left in its own control group, ended.
sweep() {
  up "$1" && return
  for root in /sys/fs/cgroup /sys/fs/cgroup/unified /sys/fs/cgroup/systemd; do
    [ -n "$2" ] && [ -d "$root$2" ] || continue
    find "$root$2" -name cgroup.procs -exec cat {} + 2>/dev/null | while read -r pid; do
      say "ending pid $pid, which $1 left"; kill -9 "$pid" 2>/dev/null
    done
  done
}
mark clearing

# 1. Nothing of the trial's runs or is set up any more.
for name in @FILES@; do rm -f "$name"; done
@RMDIR@
sc daemon-reload || say 'systemctl daemon-reload failed'
case $(systemctl show -p DropInPaths --value "$unit") in *@TAG@*) fail "the variant's drop-in is still loaded" ;; esac
for name in @VARIANTS@; do
  case $(state "$name") in
    inactive) ;;
    *) say "stopping $name"; wait=@STOP_S@; sc stop "$name" || sc kill -s KILL "$name"; wait=60 ;;
  esac
  sweep "$name" @SLICE@/"$name"
  sc reset-failed "$name" 2>/dev/null
done
if [ -e "$run/changed" ]; then
  say "$unit may run a variant; stopping it"
  stop_all
  rm -f "$run/changed"
fi

# 2. Processes that were seen to be a variant's, or the stopped original's, are ended: by pid and start time.
if [ -f "$run/pids" ]; then
  while read -r pid started whose; do
    [ "$whose" = original ] && up "$unit" && continue
    stat=$(cat "/proc/$pid/stat" 2>/dev/null) || continue
    set -- ${stat##*) }
    [ "${20:-}" = "$started" ] || continue
    [ "$1" = Z ] || say "ending pid $pid, which the trial left"
    kill -9 "$pid" 2>/dev/null
  done <"$run/pids"
fi
sweep "$unit" @GROUP@
mark cleared
@GPUS@
# 3. The original, and what triggers it: a socket is not started while its service runs.
for name in @TRIGGERS@; do
  up "$unit" || break
  up "$name" || sc start "$name" || { say "$name does not start while $unit runs; stopping that"; stop_all; }
done
if up "$unit"; then
  say "$unit is $(state "$unit")"
else
  sc reset-failed "$unit" 2>/dev/null
  for name in @TRIGGERS@; do
    up "$name" || { sc reset-failed "$name" 2>/dev/null; sc start "$name" || fail "$name does not start"; }
  done
  say "starting $unit"
  sc start --no-block "$unit" || fail "$unit cannot be started"
fi
mark starting
began=$(seconds)
while :; do
  case $(state "$unit") in
    active) break ;;
    failed) fail "$unit failed: $(systemctl show -p Result --value "$unit")" ;;
    inactive) [ $(($(seconds) - began)) -lt 5 ] || fail "$unit does not stay up" ;;
  esac
  [ $(($(seconds) - began)) -lt @START_S@ ] || fail "$unit was not up in time"
  sleep 1
done

# 4. It answers, and what depends on it is back.
@PROBE@
for name in @DEPENDENTS@; do
  case $(state "$name") in
    active|reloading) ;;
    *) sc reset-failed "$name" 2>/dev/null; bring "$name" || fail "$name, which was active, does not start" ;;
  esac
done
for name in "$unit" @TRIGGERS@; do
  case $(state "$name") in active|reloading) ;; *) fail "$name is $(state "$name")" ;; esac
done
say "$unit is back"
mark restored

# 5. While the trial is at work it decides itself what comes next; otherwise nothing of it stays.
case $(state @TRIAL@) in
  active|activating|reloading) exit 0 ;;
  '') fail 'systemd does not say whether the trial is at work' ;;
esac
@CLEAN@
"""

_GPUS = r"""
# The memory it had is free, or the wait for it is over; whoever else uses a GPU may go on.
# A driver that is stuck would hold whoever waits for its answer: it is asked beside this, and left behind.
ask_gpus() {
  nvidia-smi --query-gpu=uuid,memory.used --format=csv,noheader,nounits >"$run/gpus" 2>/dev/null &
  asked=$! tries=0
  while kill -0 "$asked" 2>/dev/null; do
    [ "$tries" -lt 20 ] || { say 'nvidia-smi does not answer; not waiting for GPU memory'; return 1; }
    tries=$((tries + 1)); sleep 1
  done
  over=$(awk -F', *' -v most=@MOST@ 'BEGIN {
      split(most, list, " "); for (i in list) { split(list[i], one, "="); at[one[1]] = one[2] } }
    ($1 in at) && ($2 + 0 > at[$1] + 0) { print $1 " " $2 " MiB" }' "$run/gpus" 2>/dev/null)
  [ -n "$over" ]
}
if command -v nvidia-smi >/dev/null 2>&1 && ! up "$unit"; then
  began=$(seconds)
  while ask_gpus; do
    [ $(($(seconds) - began)) -lt @GPU_S@ ] || { say "still in use: $over; starting all the same"; break; }
    say "waiting for GPU memory: $over"
    sleep 2
  done
fi
"""

_PROBE = r"""
asked() {
  if command -v curl >/dev/null 2>&1; then
    curl -fsS --max-time 120 @CURL@ -H 'Content-Type: application/json' -H @"$run/headers" \
      -d @"$run/request.json" @URL@ >/dev/null 2>&1
  elif command -v python3 >/dev/null 2>&1; then
    python3 "$run/ask.py" >/dev/null 2>&1
  else
    say 'neither curl nor python3 here: it was not asked to generate'
  fi
}
say "waiting until it generates"
began=$(seconds)
until asked; do
  mark starting
  case $(state "$unit") in active) ;; *) fail "$unit is $(state "$unit") while it loads" ;; esac
  # Told, and waited for again: one that only loads for longer must not be started anew.
  [ $(($(seconds) - began)) -lt @START_S@ ] || fail "it does not generate"
  sleep 1
done
"""

_ASK = """import ssl, urllib.request
headers = dict(line.rstrip("\\n").split(": ", 1) for line in open({run!r} + "/headers") if ": " in line)
context = ssl.create_default_context(cafile={ca!r}) if {url!r}.startswith("https") else None
body = open({run!r} + "/request.json", "rb").read()
request = urllib.request.Request({url!r}, body, {{"Content-Type": "application/json", **headers}})
urllib.request.urlopen(request, timeout=120, context=context).read()
"""


@dataclass(frozen=True, slots=True)
class Ask:
    """How the original proves that it is back.

    Attributes:
        url: where a completion is asked for.
        body: what is sent, JSON.
        headers: sent with it; may hold a key, so they lie in a file of their own that its owner alone reads.
        ca_file: the authorities to believe, or None.
    """

    url: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    ca_file: str | None = None


@dataclass(frozen=True, slots=True)
class Recipe:
    """What the script is made from.

    Attributes:
        names: the trial's.
        unit: the original.
        group: its control group, below the root of the tree; empty where that is not known.
        variants: units of variants, running or not.
        files: every file of the trial's that changes what runs: unit files of variants, the drop-in.
        triggers: sockets, timers and paths that were active and start it; stopped while a variant runs.
        dependents: units that were active and stop with it, in the order they are started.
        stop_s: most seconds one of them may take to stop.
        start_s: most seconds the original may take to serve, an attempt.
        gpu_mib: GPU UUID to the most MiB that may be in use before it starts; empty: not waited for.
        gpu_wait_s: most seconds to wait for that.
        ask: how it proves that it serves; None: being active is all that can be seen.
        finisher: argv of what writes the record once nothing of the trial's is left; empty: nothing.
        lasting: files in /etc to remove at the end.
    """

    names: Names
    unit: str
    variants: tuple[str, ...]
    files: tuple[str, ...]
    group: str = ""
    triggers: tuple[str, ...] = ()
    dependents: tuple[str, ...] = ()
    stop_s: int = 120
    start_s: int = 3600
    gpu_mib: dict[str, int] = field(default_factory=dict)
    gpu_wait_s: int = 120
    ask: Ask | None = None
    finisher: tuple[str, ...] = ()
    lasting: tuple[str, ...] = ()

    @property
    def units(self) -> tuple[str, ...]:
        """The unit files of the way back itself."""
        names = self.names
        return (names.restore, names.deadman, names.deadman_service)


def restore_script(recipe: Recipe, *, clean: bool = True) -> str:
    """Return the script.

    Args:
        recipe: what it does.
        clean: whether it takes the way back away at its end, where the trial is not at work any more.
    """
    names = recipe.names
    folder = next((path.rpartition("/")[0] for path in recipe.files if path.endswith(".conf")), "")
    gpus = ""
    if recipe.gpu_mib:
        most = " ".join(f"{uuid}={mib}" for uuid, mib in sorted(recipe.gpu_mib.items()))
        gpus = _GPUS.replace("@GPU_S@", str(recipe.gpu_wait_s)).replace("@MOST@", shlex.quote(most))
    probe = ""
    if recipe.ask is not None:
        ca = f"--cacert {shlex.quote(recipe.ask.ca_file)}" if recipe.ask.ca_file else ""
        probe = _PROBE.replace("@URL@", shlex.quote(recipe.ask.url)).replace("@CURL@", ca)
    values = {
        "@GPUS@": gpus,
        "@PROBE@": probe,
        "@CLEAN@": f"{_words(cleaning(recipe))} || fail 'what the trial set up stays'\nexit 0" if clean else "exit 0",
        "@UNIT_Q@": shlex.quote(recipe.unit),
        "@UNIT@": recipe.unit,
        "@TAG@": names.tag,
        "@RUN_Q@": shlex.quote(names.folder),
        "@TRIAL@": shlex.quote(names.trial),
        "@FILES@": _words(recipe.files),
        "@RMDIR@": f"rmdir {shlex.quote(folder)} 2>/dev/null" if folder else ":",
        "@VARIANTS@": _words(recipe.variants),
        "@TRIGGERS@": _words(recipe.triggers),
        "@DEPENDENTS@": _words(recipe.dependents),
        "@STOP_S@": str(recipe.stop_s),
        "@GROUP@": shlex.quote(recipe.group),
        "@SLICE@": shlex.quote(recipe.group.rpartition("/")[0]),
        "@START_S@": str(recipe.start_s),
    }
    text = _SCRIPT
    for name, value in values.items():
        text = text.replace(name, value)
    return text


def clean_script(recipe: Recipe) -> str:
    """Return the script that takes the way back away, once the original is back, and then has the record written.

    It runs in a unit of its own: a restore that removed its own unit could not be run again.
    """
    names = recipe.names
    paths = [*recipe.files, *(names.path(unit) for unit in recipe.units), *recipe.lasting]
    units = (*recipe.variants, *recipe.units, names.trial)
    lines = [
        "#!/bin/sh",
        f"# Removes everything of trial {names.tag} from this host but its record.",
        f"systemctl stop {_words((names.deadman, names.restore))} 2>/dev/null",
        f"rm -f {_words(paths)}",
        f"rm -rf {shlex.quote(names.folder)}",
        "timeout -k 5 60 systemctl daemon-reload",
        f"systemctl reset-failed {_words(units)} 2>/dev/null",
        f"rm -f {shlex.quote(names.clean)}",
        "rmdir /run/draftworth 2>/dev/null",
        f"exec {_words(recipe.finisher)}" if recipe.finisher else "exit 0",
    ]
    return "\n".join(lines) + "\n"


def cleaning(recipe: Recipe) -> list[str]:
    """Return the command that starts that unit; it is run again until it has succeeded."""
    names = recipe.names
    properties = ("Type=oneshot", "Restart=on-failure", "RestartSec=1", "StartLimitIntervalSec=0")
    options = [f"--property={one}" for one in properties]
    run = f"[ ! -e {names.clean} ] || exec /bin/sh {names.clean}"
    return [
        *("systemd-run", "--no-block", "--collect", "--quiet", f"--unit={names.record}", *options),
        *("--", "/bin/sh", "-c", run),
    ]


def ask_files(recipe: Recipe) -> dict[str, bytes]:
    """Return the files beside the script that its question needs: name to content, all private."""
    ask = recipe.ask
    if ask is None:
        return {}
    headers = "".join(f"{name}: {value}\n" for name, value in ask.headers.items())
    script = _ASK.format(run=recipe.names.folder, url=ask.url, ca=ask.ca_file)
    return {"headers": headers.encode(), "request.json": ask.body, "ask.py": script.encode()}


def completion(model: str) -> bytes:
    """Return the body of the question: one token."""
    return json.dumps({"model": model, "prompt": "Hello", "max_tokens": 1}).encode()


def _words(words: tuple[str, ...] | list[str]) -> str:
    return " ".join(map(shlex.quote, words))
