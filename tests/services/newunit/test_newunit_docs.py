"""The page shows the unit that the code makes, and systemd takes it as it stands there."""

from tests.services.newunit.docs_example import PAGE, example, page
from tests.services.newunit.test_newunit_topology import CASE

from draftworth.hosts import host_for
from draftworth.services.newunit.base import NewUnit
from draftworth.services.newunit.verify import verify


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tests.services.newunit.docs_example"


def test_systemd_takes_the_example() -> None:
    # Only the program is not on the machine that tests.
    text = example().replace("ExecStart=/opt/vllm/bin/vllm", "ExecStart=/bin/true")
    unit = NewUnit(name="kimi-k2.5.service", text=text, checks=(), proposed=(), nccl_active=False, install=())
    found = verify(host_for(None), unit)
    assert [check.text for check in found.checks if "/usr/bin/nvidia-smi" not in check.text] == []


def test_the_example_has_what_the_case_had() -> None:
    text = example()
    for line in ("LimitNOFILE=65536", "LimitMEMLOCK=infinity", "Restart=on-failure", "RestartSec=30s"):
        assert f"\n{line}\n" in text
    for name, value in CASE.items():
        assert f'\n#Environment="{name}={value}"\n' in text
    assert '[ "$$used" -le 1000 ]' in text
    assert "rm -f /dev/shm" not in text
