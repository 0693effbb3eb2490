"""Real systemd, a fake engine and fake GPUs for the tests of this folder."""

from tests.real.private_systemd import module_systemd, private_systemd
from tests.services.newunit.engine import engine

__all__ = ["engine", "module_systemd", "private_systemd"]
