"""States that never touch a disk: the frozen target runs in front of every batch, in the process that trains.

A small target's forward costs less than reading its states (four slots a token), and nothing bounds how many tokens
are learned from. The batches are those that speculators makes of files: packed by its sampler, shifted within each
sample (speculators 0.9, `train/data.py`, `models/eagle3/data.py`). The target reads a batch as rows padded at their
ends: with causal attention no token sees what stands behind it, so no mask is needed.

Run as a worker of its own with the request of `fit_worker` (task `train`) or of `walk_worker` (task `walk`), and
`layers`, `train`, `held_out`; `limit_s` ends a training in time, with a checkpoint that the next one goes on from.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from draftworth.training.workers.channel import Channel
from draftworth.training.workers.packing import followed, groups, spans_of
from draftworth.training.workers.samples import Sample, read_samples
from draftworth.training.workers.states_worker import Capturing

PADDED = 32_768
"""Most tokens, padding included, that the target reads at once: enough to fill a GPU, and bounded memory."""


def work(request: Mapping[str, Any], channel: Channel) -> dict[str, Any]:
    """Train (`fit_worker.work`) or walk (`walk_worker.work`) with states that are made when they are needed.

    Args:
        request: see the module's text.
        channel: takes progress.
    """
    device = "cuda" if request["device"] != "cpu" and torch.cuda.is_available() else "cpu"
    frozen = Frozen(Path(request["target"]), device, request["layers"])
    if request["task"] == "walk":
        from draftworth.training.workers import walk_worker  # noqa: PLC0415 - only what the task needs

        # A name of that module is replaced, as `fit_trainer` does with speculators': this process runs nothing else.
        setattr(walk_worker, "read_states", frozen.of_sample)  # noqa: B010 - a function of another module
        return walk_worker.work(request, channel)
    import speculators.train.cli as speculators_cli  # type: ignore[import-not-found]  # noqa: PLC0415 - slow to import

    from draftworth.training.workers import fit_trainer, fit_worker  # noqa: PLC0415 - as above

    setattr(fit_trainer, "read_states", frozen.of_sample)  # noqa: B010 - as above
    setattr(speculators_cli, "create_train_val_loaders", Loaders(request, frozen))  # noqa: B010 - as above
    if request.get("limit_s") is not None:
        fit_trainer.WalkingTrainer = _timed(  # type: ignore[misc]
            fit_trainer.WalkingTrainer, fit_trainer.EnoughError, time.monotonic() + float(request["limit_s"])
        )
    for name in (fit_worker.ROWS, fit_worker.STATES):
        (Path(request["folder"]) / name).mkdir(exist_ok=True)  # named to speculators, and never read
    return fit_worker.work(request, channel)


class Frozen(Capturing):
    """The target, whose states are read in batches.

    Args:
        target: its folder.
        device: `cpu` or `cuda`.
        layers: after how many layers the auxiliary states are read.
    """

    def __init__(self, target: Path, device: str, layers: Sequence[int]) -> None:
        super().__init__(target, device)
        self.read = tuple(layers)
        for parameter in self._model.parameters():
            parameter.requires_grad_(False)  # noqa: FBT003 - torch's own signature

    def of_sample(self, _folder: Path, sample: Sample) -> torch.Tensor:
        """Return a sample's states in float32, [T, slots, hidden], as `samples.read_states` does of a file."""
        return self.states(sample.ids, self.read).float()

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def packed(
        self, ids: NDArray[np.int64], spans: Sequence[tuple[int, int]], most: int = PADDED
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the states of several samples that lie in one row.

        Args:
            ids: the row, [T].
            spans: where each sample lies: first token, one behind the last.
            most: tokens that the target reads at once, padding included.

        Returns:
            The auxiliary states [T, aux * hidden] and those in front of the last norm [T, hidden], on the device;
            zeros where no sample lies.
        """
        aux: torch.Tensor | None = None
        last: torch.Tensor | None = None
        self._wanted = frozenset((*self.read, -1))
        for part in groups([end - first for first, end in spans], most):
            longest = max(spans[at][1] - spans[at][0] for at in part)
            rows = np.zeros((len(part), longest), np.int64)
            source, place = [], []
            for row, at in enumerate(part):
                first, end = spans[at]
                rows[row, : end - first] = ids[first:end]
                source.append(row * longest + np.arange(end - first))
                place.append(np.arange(first, end))
            self._after.clear()
            self._model(torch.from_numpy(rows).to(self.device), use_cache=False)
            taken, put = (torch.from_numpy(np.concatenate(one)).to(self.device) for one in (source, place))
            some = torch.cat([self._after[one].flatten(0, 1)[taken] for one in self.read], -1)
            behind = self._after[-1].flatten(0, 1)[taken]
            if aux is None or last is None:
                aux, last = (one.new_zeros(len(ids), one.shape[-1]) for one in (some, behind))
            aux[put], last[put] = some, behind
        self._after.clear()
        assert aux is not None, "a batch holds a sample"
        assert last is not None
        return aux, last

    def batch(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return a packed batch of ids as speculators' trainer takes it: with states, shifted within each sample.

        Args:
            batch: `input_ids`, `loss_mask`, `position_ids`, `document_ids` (-1: padding), each [1, T], on the CPU;
                anything else stays as it is.
        """
        documents = batch["document_ids"][0].numpy()
        aux, last = self.packed(batch["input_ids"][0].numpy(), spans_of(documents))
        front = torch.from_numpy(followed(documents))
        moved = {name: one for name, one in batch.items() if not isinstance(one, torch.Tensor)}
        for name, shift in (("input_ids", 1), ("loss_mask", 1), ("position_ids", 1)):
            moved[name] = _filled(batch[name][0], front + shift).to(self.device, non_blocking=True)[None]
        moved["document_ids"] = _filled(batch["document_ids"][0], front, -1).to(self.device, non_blocking=True)[None]
        there = front.to(self.device)
        moved["hidden_states"] = _filled(aux, there)[None]
        moved["verifier_last_hidden_states"] = _filled(last, there + 1)[None]
        return moved


def _filled(values: torch.Tensor, where: torch.Tensor, fill: int = 0) -> torch.Tensor:
    """Return the values at some positions, followed by as many others as keep the length."""
    found = values.new_full(values.shape, fill)
    found[: len(where)] = values[where]
    return found


class _WithStates:
    """A loader of packed ids that yields batches with states."""

    def __init__(self, loader: Any, frozen: Frozen) -> None:
        self.loader, self._frozen = loader, frozen
        self.batch_sampler = loader.batch_sampler

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self.loader:
            yield self._frozen.batch(batch)


class Loaders:
    """Stands for speculators' `create_train_val_loaders`.

    Args:
        request: `train` and `held_out` name the parquet files; `held_out_limit` bounds what is validated.
        frozen: the target.
    """

    def __init__(self, request: Mapping[str, Any], frozen: Frozen) -> None:
        self._request, self._frozen = request, frozen

    def __call__(self, **told: Any) -> tuple[_WithStates, _WithStates]:
        """Return the loaders of the samples that are learned and of those that are held out."""
        train = read_samples(Path(self._request["train"]))
        held = read_samples(Path(self._request["held_out"]), limit=self._request.get("held_out_limit"))
        return self._loader(train, told, told.get("seed", 0)), self._loader(held, told, 0)

    def _loader(self, samples: Sequence[Sample], told: Mapping[str, Any], seed: int) -> _WithStates:
        from speculators.train.data import BaseDataset  # type: ignore[import-not-found]  # noqa: PLC0415 - as above
        from speculators.train.dataloader import (  # type: ignore[import-not-found]  # noqa: PLC0415 - as above
            _setup_dataloader,
        )

        class Ids(BaseDataset):  # type: ignore[misc]
            """Samples without states."""

            def __len__(self) -> int:
                return len(samples)

            def _compute_approx_lengths(self) -> list[int]:
                return [len(one.ids) for one in samples]

            def _get_raw_data(self, index: int) -> dict[str, torch.Tensor]:
                one = samples[int(index)]
                return {"input_ids": torch.from_numpy(one.ids), "loss_mask": torch.from_numpy(one.mask).long()}

        loader = _setup_dataloader(
            Ids(told["total_seq_len"], told["hidden_states_dtype"]),
            told["total_seq_len"],
            told["hidden_size"],
            num_workers=0,  # ids alone: packing them takes less than handing them to another process
            num_target_layers=told["num_target_layers"],
            seed=seed,
        )
        return _WithStates(loader, self._frozen)


def _timed(trainer: Any, enough: type[Exception], deadline: float) -> Any:
    """Return a trainer that ends at a moment, with a checkpoint; `timed_out` of its result tells."""

    class Timed(trainer):  # type: ignore[misc]
        """Ends in time."""

        timed_out = False

        def _stepped(self) -> None:
            super()._stepped()
            local = self.global_step - self._epoch_began
            if time.monotonic() >= deadline and local < self._epoch_steps:
                self.maybe_save_checkpoint(self._epoch, local_step=local)
                self._end()

        def maybe_update_best(self, epoch: int, val_metrics: Mapping[str, float] | None) -> None:
            """Judge the epoch, then end where the time is up."""
            super().maybe_update_best(epoch, val_metrics)
            if time.monotonic() >= deadline and epoch + 1 < self.settings.epochs:
                self._end()

        def _end(self) -> None:
            self.timed_out = True
            raise enough

        def result(self) -> dict[str, Any]:
            """Return what came out."""
            return {**super().result(), "timed_out": self.timed_out}

    return Timed
