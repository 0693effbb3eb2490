"""What the unit removes from /dev/shm: files of its own earlier starts, and nothing else."""

import subprocess
import time

import pytest
from tests.real.private_systemd import PrivateSystemd
from tests.services.newunit.engine import FakeEngine, installed, journal

from draftworth.services.newunit.base import Asked
from draftworth.services.newunit.steps import stale_shm


def files(systemd: PrivateSystemd) -> set[str]:
    return set(systemd.run(["ls", "/dev/shm"]).stdout.decode().split())


def put(systemd: PrivateSystemd, name: str, user: str = "daemon") -> None:
    systemd.run(["sh", "-c", 'echo x >"/dev/shm/$1" && chown "$2" "/dev/shm/$1"', "sh", name, user])


def test_only_own_stale_files_go(private_systemd: PrivateSystemd, engine: FakeEngine) -> None:
    put(private_systemd, "psm_before")  # of the same user, from before this unit's first start: a neighbour's
    engine.tell("shm", "vllm_offload_0.mmap")
    unit = installed(private_systemd, Asked(command=engine.command, name="shm"), engine.machine(user="daemon"))
    private_systemd.systemctl("start", unit.name)
    time.sleep(0.05)
    put(private_systemd, "psm_stale")
    put(private_systemd, "psm_of_root", "root")
    put(private_systemd, "psm_mapped")
    put(private_systemd, "psm_open")
    put(private_systemd, "users_own_data")
    put(private_systemd, "psm_odd name")
    put(private_systemd, "psm_*")  # expanded by a careless shell, it would name the neighbour's file
    private_systemd.run(["ln", "-s", "/etc/hostname", "/dev/shm/nccl-link"])
    script = (
        # Not the module mmap, which keeps the file open as well.
        "import ctypes,os,sys; f=os.open('/dev/shm/psm_mapped',os.O_RDWR); c=ctypes.CDLL(None); "
        "c.mmap.restype=ctypes.c_void_p; m=c.mmap(None,1,1,1,f,ctypes.c_long(0)); os.close(f); "
        "o=open('/dev/shm/psm_open'); print('ready',flush=True); sys.stdin.read()"
    )
    words = private_systemd.exec(["/usr/bin/python3", "-c", script])
    holder = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        (engine.folder / "shm").unlink()
        private_systemd.systemctl("restart", unit.name)
        listed = private_systemd.run(["ls", "/dev/shm"]).stdout.decode().splitlines()
        assert sorted(listed) == [
            *(
                "nccl-link",
                "psm_*",
                "psm_before",
                "psm_mapped",
                "psm_odd name",
                "psm_of_root",
                "psm_open",
                "users_own_data",
            )
        ]
        log = journal(private_systemd, unit)
        assert "removed, left by an earlier start: /dev/shm/psm_stale" in log
        assert "removed, left by an earlier start: /dev/shm/vllm_offload_0.mmap" in log
        assert "in use, stays: /dev/shm/psm_mapped" in log
        assert "in use, stays: /dev/shm/psm_open" in log
    finally:
        holder.communicate()  # it ends when its standard input does


def test_where_not_every_process_is_seen_everything_stays(private_systemd: PrivateSystemd) -> None:
    private_systemd.run(["sh", "-c", "mkdir /run/x && touch /run/x/last && sleep 0.05"])
    put(private_systemd, "psm_stale")
    inside = private_systemd.run(["readlink", "/proc/self/ns/pid"]).stdout.decode().strip().strip("pid:[]")

    def ran(namespace: int) -> str:
        script = " ".join(stale_shm("daemon", "/run/x/last", namespace=namespace))
        return private_systemd.run(["sh", "-c", script]).stdout.decode()

    assert "stays: /dev/shm/psm_stale" in ran(1)
    assert files(private_systemd) == {"psm_stale"}
    assert "removed" in ran(int(inside))
    assert files(private_systemd) == set()


def test_where_a_process_cannot_be_looked_into_everything_stays(private_systemd: PrivateSystemd) -> None:
    private_systemd.run(["sh", "-c", "mkdir /run/x && touch /run/x/last && sleep 0.05"])
    put(private_systemd, "psm_stale")
    inside = int(private_systemd.run(["readlink", "/proc/self/ns/pid"]).stdout.decode().strip().strip("pid:[]"))
    script = " ".join(stale_shm("daemon", "/run/x/last", namespace=inside))
    without = ["setpriv", "--reuid", "daemon", "--clear-groups", "sh", "-c", script]
    assert "cannot tell what a process has open" in private_systemd.run(without).stdout.decode()
    assert files(private_systemd) == {"psm_stale"}


@pytest.mark.parametrize("name", ["torch_1_0", "sgl_shm_mm_1_a", "__KMP_REGISTERED_LIB_1"])
def test_a_file_named_after_a_process_that_lives_stays(private_systemd: PrivateSystemd, name: str) -> None:
    private_systemd.run(["sh", "-c", "mkdir /run/x && touch /run/x/last && sleep 0.05"])
    put(private_systemd, name)
    inside = int(private_systemd.run(["readlink", "/proc/self/ns/pid"]).stdout.decode().strip().strip("pid:[]"))
    private_systemd.run(["sh", "-c", " ".join(stale_shm("daemon", "/run/x/last", namespace=inside))])
    assert files(private_systemd) == {name}


@pytest.mark.parametrize(
    "name", ["psm_1", "torch_99997_0", "sem.mp-x", "sgl_shm_mm_99998_a", "nccl-Ab1", "__KMP_REGISTERED_LIB_99999"]
)
def test_names_that_servers_make_go(private_systemd: PrivateSystemd, name: str) -> None:
    private_systemd.run(["sh", "-c", "mkdir /run/x && touch /run/x/last && sleep 0.05"])
    put(private_systemd, name)
    inside = int(private_systemd.run(["readlink", "/proc/self/ns/pid"]).stdout.decode().strip().strip("pid:[]"))
    private_systemd.run(["sh", "-c", " ".join(stale_shm("daemon", "/run/x/last", namespace=inside))])
    assert files(private_systemd) == set()
