"""Hidden states by transformers: all samples of a split where there is no vLLM, or a few to hold vLLM's against.

A state "after k layers" is the output of the k-th decoder layer (0: the embedding's), which is what vLLM counts as k;
the last slot is what goes into the model's last norm. transformers' own `hidden_states[-1]` is behind that norm, so
hooks are used (vllm-project/speculators#313: a head trained on it was served at 25 % instead of 40 %).
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from draftworth.training.workers.channel import Channel, WorkerRefusedError
from draftworth.training.workers.samples import SCALES, Sample, read_samples, read_states

_NORMS = ("norm", "final_layernorm", "norm_f", "ln_f")
_LAYERS = ("layers", "h", "blocks")
_E4M3_MOST = 448.0


def work(request: Mapping[str, Any], channel: Channel) -> dict[str, Any]:
    """Do what the request says: `states` or `compare`.

    Args:
        request: `task`, `target`, `device`, `layers`; of `states` `jobs` ([{parquet, folder, rows}]) and `dtype`; of
            `compare` `parquet`, `folder`, `rows`.
        channel: takes progress.
    """
    device = _device(str(request["device"]))
    model = Capturing(Path(request["target"]), device)
    if request["task"] == "compare":
        return _compare(request, model)
    return _states(request, model, channel)


class Capturing:
    """A target whose states are read while it runs."""

    def __init__(self, target: Path, device: str) -> None:
        from transformers import AutoModelForCausalLM  # noqa: PLC0415 - slow to import

        dtype = torch.float32 if device == "cpu" else "auto"
        whole = AutoModelForCausalLM.from_pretrained(target, dtype=dtype, local_files_only=True).to(device).eval()
        self.device = device
        self._model, layers, norm = _decoder(whole)
        self.layers = len(layers)
        self._after: dict[int, torch.Tensor] = {}
        layers[0].register_forward_pre_hook(self._keeper(0), with_kwargs=True)
        for count, layer in enumerate(layers, start=1):
            layer.register_forward_hook(self._output_keeper(count))
        norm.register_forward_pre_hook(self._keeper(-1), with_kwargs=True)
        self._wanted: frozenset[int] = frozenset()

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def states(self, ids: np.ndarray, after: Iterable[int]) -> torch.Tensor:
        """Return the states after the given numbers of layers and, last, those in front of the last norm.

        Returns:
            [T, slots, hidden], on the CPU.
        """
        wanted = tuple(after)
        self._wanted = frozenset((*wanted, -1))
        self._after.clear()
        self._model(torch.from_numpy(ids)[None].to(self.device), use_cache=False)
        return torch.stack([self._after[one][0] for one in (*wanted, -1)], 1).cpu()

    def _keeper(self, name: int) -> Any:
        def keep(_module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if name in self._wanted:
                self._after[name] = args[0] if args else kwargs["hidden_states"]

        return keep

    def _output_keeper(self, name: int) -> Any:
        def keep(_module: Any, _args: tuple[Any, ...], output: Any) -> None:
            if name in self._wanted:
                self._after[name] = output[0] if isinstance(output, tuple) else output

        return keep


def _decoder(whole: Any) -> tuple[Any, Any, Any]:
    """Return the module to call, its decoder layers and its last norm.

    Raises:
        WorkerRefusedError: it has no module of the usual names.
    """
    config = whole.config.get_text_config()
    for module in whole.modules():
        layers = next((getattr(module, name) for name in _LAYERS if hasattr(module, name)), None)
        norm = next((getattr(module, name) for name in _NORMS if hasattr(module, name)), None)
        if norm is not None and isinstance(layers, torch.nn.ModuleList) and len(layers) == config.num_hidden_layers:
            return module, layers, norm
    raise WorkerRefusedError(
        f"{type(whole).__name__}: its decoder layers and last norm were not found; take states from vLLM instead "
        '(way = "vllm")'
    )


def _states(request: Mapping[str, Any], model: Capturing, channel: Channel) -> dict[str, Any]:
    jobs = [(Path(job["folder"]), _picked(job)) for job in request["jobs"]]
    total, done = sum(len(samples) for _, samples in jobs), 0
    for folder, samples in jobs:
        for sample in samples:
            states = model.states(sample.ids, request["layers"])
            if not bool(torch.isfinite(states).all()):
                raise WorkerRefusedError(f"sample {sample.row}: its states are not finite; is the target sound?")
            write_states(folder / f"hs_{sample.row}.safetensors", sample.ids, states, str(request["dtype"]))
            done += 1
            channel.count(done, total, f"{len(sample.ids)} tokens")
    return {"written": done, "layers": model.layers, "device": model.device}


def write_states(path: Path, ids: np.ndarray, states: torch.Tensor, dtype: str) -> None:
    """Write one sample's states so that the file is there whole or not at all.

    Args:
        path: the file.
        ids: token ids, [T].
        states: [T, slots, hidden].
        dtype: `bf16`, `fp32`, or `fp8`: E4M3 with one scale a token, the largest value over 448.
    """
    from safetensors.torch import save_file  # type: ignore[import-not-found]  # noqa: PLC0415 - not the tool's

    tensors = {"token_ids": torch.from_numpy(np.asarray(ids, np.int64))}
    if dtype == "fp8":
        scales = (states.float().abs().amax((1, 2), keepdim=True) / _E4M3_MOST).clamp(min=1e-12)
        tensors["hidden_states"] = (states.float() / scales).to(torch.float8_e4m3fn)
        tensors[SCALES] = scales
    else:
        tensors["hidden_states"] = states.to(torch.bfloat16 if dtype == "bf16" else torch.float32).contiguous()
    temporary = path.with_name(f".{path.name}.tmp")
    save_file(tensors, temporary)
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.replace(path)


def _compare(request: Mapping[str, Any], model: Capturing) -> dict[str, Any]:
    """Tell for each slot which of the target's states, and at which shift, it is nearest to.

    Returns:
        `samples`, `tokens`, and `slots`: for each the layer and shift found (layer -1: in front of the last norm), the
        relative difference there, and at the layer that was expected.
    """
    samples = _picked(request)
    expected = [*request["layers"], -1]
    every = range(model.layers + 1)
    errors = np.zeros((len(expected), model.layers + 2, 3))
    for sample in samples:
        stored = read_states(Path(request["folder"]), sample)
        own = model.states(sample.ids, every).float()  # the last of them is in front of the last norm
        # The last token's row may be empty: see `capture.py`.
        stored, own = stored[:-1], own[:-1]
        for slot in range(stored.shape[1]):
            for layer in range(own.shape[1]):
                for at, shift in enumerate((-1, 0, 1)):
                    errors[slot, layer, at] += _distance(stored[:, slot], own[:, layer], shift)
    errors /= max(len(samples), 1)
    slots = []
    for slot, layer in enumerate(expected):
        # Behind the last layer and in front of the last norm is the same state.
        column = model.layers + 1 if layer == -1 else layer
        best, at = (int(one) for one in np.unravel_index(int(errors[slot].argmin()), errors[slot].shape))
        if errors[slot, column, 1] <= errors[slot, best, at] * 1.0001:
            best, at = column, 1
        slots.append(
            {
                "expected": layer,
                "found": -1 if best == model.layers + 1 else best,
                "shift": at - 1,
                "difference": float(errors[slot, best, at]),
                "difference_expected": float(errors[slot, column, 1]),
            }
        )
    return {"samples": len(samples), "tokens": int(sum(len(one.ids) for one in samples)), "slots": slots}


def _distance(stored: torch.Tensor, own: torch.Tensor, shift: int) -> float:
    """Return the norm of the difference over that of the state, with `stored` moved by `shift` positions."""
    length = len(own) - abs(shift)
    ours = own[max(-shift, 0) : max(-shift, 0) + length]
    theirs = stored[max(shift, 0) : max(shift, 0) + length]
    return float((theirs - ours).norm() / ours.norm().clamp(min=1e-12))


def _picked(job: Mapping[str, Any]) -> list[Sample]:
    rows = set(job["rows"])
    return [one for one in read_samples(Path(job["parquet"])) if one.row in rows]


def _device(asked: str) -> str:
    if asked == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if asked == "cuda" and not torch.cuda.is_available():
        raise WorkerRefusedError('device = "cuda": torch finds no GPU here; see `draftworth train install`')
    return asked
