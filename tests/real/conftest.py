"""Real systemd for the tests of this folder."""

from tests.real.private_systemd import module_systemd, private_systemd

__all__ = ["module_systemd", "private_systemd"]
