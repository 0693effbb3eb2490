"""Finds the arguments of `trtllm-serve` among the words of a command, whatever stands in front of them.

`trtllm-serve MODEL …`, `trtllm-serve serve MODEL …` and `python -m tensorrt_llm.commands.serve …` start a server that
answers by itself (`commands/serve.py`, 0.19 to 1.3.0rc); its other subcommands start something else.
"""

from collections.abc import Sequence

from draftworth.engines import layout
from draftworth.engines.layout import Place

_PROGRAM = "trtllm-serve"
_MODULE = "tensorrt_llm.commands.serve"
_OTHER = frozenset({"disaggregated", "disaggregated_mpi_worker", "mm_embedding_serve", "embedding_serve", "grpc"})
_SHELLS = layout.SHELLS | layout.USER_SWITCHES
_SWITCHES = frozenset(
    {
        "--trust_remote_code",
        "--fail_fast_on_attention_window_too_large",
        "--enable_chunked_prefill",
        "--enable_attention_dp",
        "--disable_kv_cache_reuse",
        "--allow_request_chat_template",
        "--grpc",
        "--telemetry",
        "--no-telemetry",
    }
)


def locate(words: Sequence[str]) -> Place | None:
    """Return where the server's arguments are in a command, or None where no word starts one."""
    for index, word in enumerate(words):
        if word.rsplit("/", 1)[-1] == _PROGRAM or (index and words[index - 1] == "-m" and word == _MODULE):
            return _arguments(words, index)
        if word.startswith(f"-m{_MODULE}"):
            return _arguments(words, index)
        if _is_shell_string(words, index):
            return Place(index, index + 1, script=True)
    return None


def positional(words: Sequence[str]) -> str | None:
    """Return the first argument that is no option and no option's value: the model."""
    index = 0
    while index < len(words):
        word = words[index]
        if not word.startswith("-"):
            return word
        index += 1 if "=" in word or word in _SWITCHES else 2
    return None


def _arguments(words: Sequence[str], program: int) -> Place | None:
    start = program + 1
    following = words[start] if start < len(words) else ""
    if following in _OTHER:
        return None
    start += following == "serve"
    return layout.until_dashes(words, start, program)


def _is_shell_string(words: Sequence[str], index: int) -> bool:
    """Whether a word is the string of a `bash -c` that starts the server."""
    if not any(mark in words[index] for mark in (_PROGRAM, _MODULE)):
        return False
    if not any(word.rsplit("/", 1)[-1] in _SHELLS for word in words[:index]):
        return False
    option = words[index - 1]
    return option == "--command" or (option.startswith("-") and not option.startswith("--") and option.endswith("c"))
