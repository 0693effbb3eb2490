"""The small shell scripts inside the unit: plain sh, nothing but what every systemd machine has.

They are written so that a person can read them in the unit: one statement a line, no line that begins with `;` or `#`
(systemd would take it for a comment in the middle of the command).
"""

import shlex
from collections.abc import Sequence

from draftworth.services.newunit.spans import span

INITIAL_PID_NAMESPACE = 4026531836
"""The inode of the host's own PID namespace (PROC_PID_INIT_INO in Linux's proc_ns.h): every process is seen from it."""

_NAMES = (
    *("psm_*", "sem.mp-*", "sem.loky-*", "vllm_offload_*"),
    *("nccl-*", "torch_[0-9]*_*", "sgl_shm_mm_*", "__KMP_REGISTERED_LIB_[0-9]*"),
)
"""What servers leave in /dev/shm; the same names as in `services.shm`, as patterns of find."""

_UPTIME = "$(cut -d. -f1 /proc/uptime)"


def exec_step(setting: str, script: Sequence[str], *, prefix: str = "") -> list[str]:
    """Return the lines of a unit that run a script: `ExecStartPre=/bin/sh -c '…'`, a line of sh a line.

    Args:
        setting: `ExecStartPre` or `ExecStartPost`.
        script: lines of sh; systemd joins them with blanks, so each ends where that is harmless.
        prefix: systemd's prefix of the command, such as `+`.
    """
    escaped = [_escaped(line) for line in script]
    return [f"{setting}={prefix}/bin/sh -c '\\", *(f"    {line} \\" for line in escaped[:-1]), f"    {escaped[-1]}'"]


def _escaped(line: str) -> str:
    # In single quotes systemd still reads backslashes, specifiers and variables (systemd.service(5)).
    for plain, written in (("\\", "\\\\"), ("'", "\\'"), ("%", "%%"), ("$", "$$")):
        line = line.replace(plain, written)
    return line


def gpu_wait(nvidia_smi: str, gpus: Sequence[str], *, floor_mib: int, wait_s: int) -> list[str]:
    """Return a script that waits until no GPU has more than `floor_mib` MiB in use; fails and says why after `wait_s`.

    The clock is the machine's uptime: a step of the wall clock during boot neither ends nor prolongs the wait. A GPU
    whose memory nvidia-smi does not tell is not waited for.

    Args:
        nvidia_smi: its path.
        gpus: indices or UUIDs; empty for all.
        floor_mib: MiB that may be in use.
        wait_s: seconds.
    """
    smi = shlex.quote(nvidia_smi) + (f" -i {','.join(gpus)}" if gpus else "")
    return [
        f"end=$(( {_UPTIME} + {wait_s} )); said=;",
        "while :; do",
        f"  if seen=$({smi} --query-gpu=index,memory.used --format=csv,noheader,nounits 2>&1); then",
        '    busy=$(echo "$seen" | while IFS=", " read -r gpu used rest; do',
        '      case "$used" in ""|*[!0-9]*) continue;; esac;',
        f'      [ "$used" -le {floor_mib} ] || echo "GPU $gpu: $used MiB in use";',
        "    done);",
        '    [ -n "$busy" ] || exit 0;',
        '  else busy="nvidia-smi failed: $seen"; fi;',
        '  [ -n "$said" ] || echo "waiting for GPU memory: $busy"; said=1;',
        f'  [ "{_UPTIME}" -lt "$end" ] || break; sleep 2;',
        "done;",
        f'echo "GPU memory not free after {span(wait_s)}, more than {floor_mib} MiB in use: $busy" >&2;',
        f"{smi} --query-compute-apps=gpu_uuid,pid,used_memory,process_name --format=csv >&2;",
        'echo "a process of a container may be missing above, see fuser -v /dev/nvidia*" >&2;',
        "exit 1",
    ]


def port_free(curl: str, url: str) -> list[str]:
    """Return a script that fails if somebody answers where the server will listen: a health check would believe it."""
    return [
        f"{curl_words(curl)} --max-time 5 {shlex.quote(url)}; code=$?;",
        '[ "$code" -eq 7 ] && exit 0;',
        f'echo "somebody listens already at {url} (curl: $code), see ss -ltnp" >&2;',
        "exit 1",
    ]


def health_wait(curl: str, url: str, *, any_answer: bool) -> list[str]:
    """Return a script that waits until the server answers, and fails at once when its process is gone.

    It has no limit of its own: systemd ends it after TimeoutStartSec=.

    Args:
        curl: its path.
        url: what is asked for.
        any_answer: any HTTP status counts; else it must not be an error.
    """
    ask = f"{curl_words(curl)}{'' if any_answer else ' --fail'} --max-time 10 {shlex.quote(url)}"
    return [
        f"until {ask}; do",
        '  kill -0 "$MAINPID" 2>/dev/null || { echo "the server ended before it served" >&2; exit 1; };',
        "  sleep 1;",
        "done;",
        'kill -0 "$MAINPID"',
    ]


def curl_words(curl: str) -> str:
    """Return curl with the options every question has: no proxy, no check of a certificate of our own machine."""
    return f'{shlex.quote(curl)} --noproxy "*" --silent --insecure --output /dev/null'


def stale_shm(user: str, stamp: str, *, namespace: int = INITIAL_PID_NAMESPACE) -> list[str]:
    """Return a script, to be run as root, that removes what earlier starts of this unit left in /dev/shm.

    A file goes only if all of this is true: its name is one that servers make; it belongs to the unit's user; it is
    newer than the unit's last start (`stamp`; without one this is the first start since boot and nothing can be ours)
    and there before this one; no process maps it or has it open; the process its name tells of is gone. If that cannot
    be told of a single process, or not every process of the machine is seen, everything stays.

    Args:
        user: the unit's user.
        stamp: path of a file that every start touches; on a tmpfs, so that it goes with /dev/shm at a reboot.
        namespace: the PID namespace from which every process is seen.
    """
    half = len(_NAMES) // 2
    first, second = (" -o ".join(f'-name "{name}"' for name in names) for names in (_NAMES[:half], _NAMES[half:]))
    return [
        f'stamp={shlex.quote(stamp)}; [ -e "$stamp" ] || exit 0;',
        "found=$(find /dev/shm -maxdepth 1 -type f",
        f'  -user {shlex.quote(user)} -newer "$stamp" -regex "/dev/shm/[A-Za-z0-9_.-]*"',
        f'  "(" {first}',
        f'  -o {second} ")");',
        '[ -n "$found" ] || exit 0;',
        f'if [ "$(readlink /proc/self/ns/pid)" != "pid:[{namespace}]" ]; then',
        '  echo "not every process is seen from here, stale shared memory stays:" $found; exit 0;',
        "fi;",
        "if ! used=$(for process in /proc/[0-9]*; do",
        """    awk '{ sub(".*/", "", $6); print $5 "/" $6 }' "$process/maps" 2>/dev/null""",
        '    && find -L "$process/fd" -ignore_readdir_race -maxdepth 1 -printf "%D:%i\\n" 2>/dev/null',
        '    || [ ! -e "$process" ] || exit 1;',
        "  done); then",
        '  echo "cannot tell what a process has open, stale shared memory stays:" $found; exit 0;',
        "fi;",
        "for file in $found; do",
        "  case ${file##*/} in torch_*|sgl_shm_mm_*|__KMP_*) maker=${file##*/};",
        "    maker=${maker#torch_}; maker=${maker#sgl_shm_mm_}; maker=${maker#__KMP_REGISTERED_LIB_};",
        '    [ ! -e "/proc/${maker%%_*}" ] || { echo "its process lives, stays: $file"; continue; };;',
        "  esac;",
        # Mapped: inode and name, whatever path another mount namespace gives it. Open: device and inode.
        '  mapped=$(stat -c %i "$file")/${file##*/} && open=$(stat -c %d:%i "$file") || continue;',
        '  if echo "$used" | grep -qxF -e "$mapped" -e "$open"; then echo "in use, stays: $file";',
        '  else rm -f -- "$file" && echo "removed, left by an earlier start: $file"; fi;',
        "done",
    ]
