"""What a server can do for the pipeline, told by asking it; what is missing is named by its flag.

Numbers of releases tell little: vLLM's render endpoints were on by default up to 0.28 and need `--enable-scale-out`
since (vllm-project/vllm#54579, #55176), and extraction depends on how the server was started, not on what it is.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np

from draftworth.errors import MeasureError, RefusedError
from draftworth.models import Frozen
from draftworth.training.asked import StatusError, ask
from draftworth.training.capture import ASK, Capture
from draftworth.training.extraction import as_text, flags
from draftworth.training.states_vllm import UnsoundError, discard, named_file, taken

_FORBIDDEN, _NOT_FOUND, _WRONG = 403, 404, (400, 405, 415, 422)
STORAGE = "/A/FOLDER/BOTH/SEE"
_REFUSED = re.compile(r"\bHTTP (?:400|405|415|422)\b")


class ServerAbilities(Frozen):
    """What a server can do."""

    url: str
    """Its URL."""
    version: str | None
    """What it says its release is; None where it says nothing."""
    model: str
    """The name it serves the model by."""
    max_model_len: int | None
    """The longest context it takes."""
    render: str
    """Its render endpoint: `there`, `off` (it needs `--enable-scale-out`) or `not there` (another engine, or old)."""
    echoes_ids: bool
    """Whether it gives back the prompt's token ids (`return_token_ids`)."""
    states_path: str | None
    """The file of hidden states that it named for a test request; None where it extracts none."""


def probe(url: str) -> ServerAbilities:
    """Ask a server what it can do, with one request of three tokens.

    Raises:
        MeasureError: it does not answer, or serves no model.
    """
    models = _or_none(url, "/v1/models")
    try:
        served: dict[str, Any] = models["data"][0]
        name = str(served["id"])
    except (TypeError, KeyError, LookupError):
        raise MeasureError(f"{url}/v1/models: it serves no model; is this an OpenAI-compatible server?") from None
    version = _or_none(url, "/version")
    body = {"model": name, "prompt": [1, 2, 3], "max_tokens": 1, "temperature": 0, "return_token_ids": True}
    try:
        answer = ask(url, "/v1/completions", body)
    except StatusError as error:
        raise MeasureError(f"{url}/v1/completions: {error}") from None
    choice = (answer.get("choices") or [{}])[0]
    echoed = choice.get("prompt_token_ids", answer.get("prompt_token_ids"))
    params = answer.get("kv_transfer_params") or {}
    longest = served.get("max_model_len")
    return ServerAbilities(
        url=url,
        version=str(version["version"]) if isinstance(version, dict) and "version" in version else None,
        model=name,
        max_model_len=longest if isinstance(longest, int) else None,
        render=_render(url, name),
        echoes_ids=echoed == body["prompt"],
        states_path=params.get("hidden_states_path"),
    )


def check_extracts(found: ServerAbilities, longest: int, flags: str) -> None:
    """Raise unless a server can give the states of samples.

    Args:
        found: what it can do.
        longest: tokens of the longest sample.
        flags: what it should have been started with.

    Raises:
        RefusedError: names what is missing.
    """
    where = f"{found.url} (vLLM {found.version or 'of an untold release'})"
    if found.states_path is None:
        raise RefusedError(f"{where} does not extract hidden states; start it with {flags}")
    if not found.echoes_ids:
        raise RefusedError(
            f"{where} does not give back the prompt's token ids (return_token_ids), so no state could be checked"
        )
    if not Path(found.states_path).parent.is_dir():
        raise RefusedError(_not_here(where, Path(found.states_path)))
    if found.max_model_len is not None and longest >= found.max_model_len:
        raise RefusedError(
            f"{where} takes {found.max_model_len:,} tokens, and the longest sample has {longest:,} and one more is "
            "made; raise --max-model-len or lower data.max_tokens"
        )


async def check_captures(
    post: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]], url: str, model: str, capture: Capture
) -> None:
    """Raise unless a server stores the states of its answers, with one request of three tokens and three answered.

    Args:
        post: sends a body to its `/v1/completions`.
        url: the server's, for what is said.
        model: the name it serves the target by.
        capture: what will take the states; it is told where the server puts them.

    Raises:
        RefusedError: names what is missing.
        MeasureError: the server does not answer.
    """
    wanted = as_text(flags(capture.shape, STORAGE, on_cpu=False))
    start = f"start it with {wanted}, or leave out data.regenerate.states"
    prompt = [1, 2, 3]
    body = {"model": model, "prompt": prompt, "max_tokens": 3, "temperature": 0, "ignore_eos": True}
    try:
        said = await post({**body, "return_token_ids": True, **ASK})
    except MeasureError as error:
        if not _REFUSED.search(str(error)):
            raise
        raise RefusedError(f"{url} does not store the states of its answers ({error}); {start}") from None
    named = named_file(said)
    if named is None:
        raise RefusedError(f"{url} does not extract hidden states; {start}")
    if not named.parent.is_dir():
        raise RefusedError(_not_here(url, named))
    choice = (said.get("choices") or [{}])[0]
    echoed, made = choice.get("prompt_token_ids", said.get("prompt_token_ids")), choice.get("token_ids")
    if echoed != prompt or not isinstance(made, list):
        await asyncio.to_thread(discard, named)
        raise RefusedError(f"{url} does not tell token ids (return_token_ids), so no state could be checked")
    ids = np.array([*prompt, *made[:-1]], np.int32)
    try:
        await asyncio.to_thread(taken, named, ids, capture.shape)
    except UnsoundError as error:
        raise RefusedError(
            f"{url} does not store the states of its answers as they are wanted ({error}): is include_output_tokens "
            f"known to this release, and are the layers these: {', '.join(map(str, capture.shape.aux))}? "
            f"{start[0].upper()}{start[1:]}"
        ) from None
    capture.only_from(named.parent)


def _not_here(where: str, path: Path) -> str:
    return (
        f"{where} writes its states to {path.parent}, which is not on this machine; set shared_storage_path to a "
        "folder that both see"
    )


def _render(url: str, model: str) -> str:
    """Tell about the render endpoint: 403 where it is switched off, 404 where there is none."""
    try:
        ask(url, "/v1/completions/render", {"model": model, "prompt": "a"})
    except StatusError as error:
        if error.status == _FORBIDDEN:
            return "off"
        return "there" if error.status in _WRONG else "not there"
    except MeasureError:
        return "not there"
    return "there"


def _or_none(url: str, path: str) -> Any:
    try:
        return ask(url, path)
    except StatusError:
        return None
