"""A KV connector that a vLLM server on a CPU writes hidden states with; loaded by `kv_connector_module_path`.

vLLM 0.32's own (`ExampleHiddenStatesConnector`) copies through pinned memory on a stream of its own, and neither exists
without an accelerator. Here the copy is made in place, and only the writing is left to its threads. On a GPU its own
connector is used, not this one. The folder of this file is put on the server's PYTHONPATH and holds nothing else.
"""

# No package: this folder alone is on the server's path.
# ruff: noqa: INP001
import fcntl
import os
from functools import partial
from typing import Any

import torch
from safetensors.torch import save_file  # type: ignore[import-not-found]
from vllm.distributed.kv_transfer.kv_connector.v1 import (  # type: ignore[import-not-found]
    example_hidden_states_connector as stock,
)


class _Done:
    """Stands for the event behind a copy: here it is always over."""

    def query(self) -> bool:
        """Tell whether the copy is over."""
        return True

    def synchronize(self) -> None:
        """Wait for the copy."""


class DraftworthConnector(stock.ExampleHiddenStatesConnector):  # type: ignore[misc]
    """vLLM's connector, without what needs an accelerator."""

    def _submit_async_write(self, pending: Any) -> None:
        """Copy one finished request's states out of the cache, and let a thread write them."""
        if not self._is_tp_rank_zero:
            return
        assert self._kv_cache is not None
        blocks = torch.tensor(pending.block_ids, dtype=torch.long)
        slots = (blocks[:, None] * self._block_size + torch.arange(self._block_size)).flatten()
        tokens = pending.token_ids.clone()
        states = stock.extract_from_kv_cache(self._kv_cache, slots, len(tokens)).clone().contiguous()
        os.makedirs(os.path.dirname(pending.filename), exist_ok=True)  # noqa: PTH103, PTH120 - as its parent has it
        lock = self._lock_fds.pop(pending.req_id, None)
        if lock is None and self.use_lock:
            lock = os.open(f"{pending.filename}.lock", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
            fcntl.flock(lock, fcntl.LOCK_EX)
        future = self._executor.submit(_written, {"hidden_states": states, "token_ids": tokens}, pending.filename, lock)
        self._req_copy_events[pending.req_id] = _Done()
        self._req_futures[pending.req_id] = future
        future.add_done_callback(partial(self._on_write_done, pending.req_id))


def _written(tensors: dict[str, torch.Tensor], filename: str, lock: int | None) -> None:
    """Write a file; closing the lock lets its reader go on."""
    try:
        save_file(tensors, filename)
    finally:
        if lock is not None:
            os.close(lock)
