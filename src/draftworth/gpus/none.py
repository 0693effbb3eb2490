"""A machine on which no way to read GPUs finds one."""

from draftworth.gpus.base import Gpus


class NoReader:
    """Reads nothing and says why. See `GpuReader`."""

    name = "none"

    def __init__(self, why: str) -> None:
        """Make a reader.

        Args:
            why: what each way to read GPUs said.
        """
        self._why = why

    def read(self) -> Gpus:
        """Return no GPUs and the reason."""
        return Gpus(source=self.name, gpus=(), why=self._why)
