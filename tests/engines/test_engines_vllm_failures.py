from pathlib import Path

import pytest

from draftworth.engines.vllm.failures import failure_hint

DATA = Path(__file__).parent / "data"


@pytest.mark.parametrize(
    ("log", "hint"),
    [
        ("unknown_flag", "error: unrecognized arguments: --nonsense"),
        ("bad_json", "error: argument --speculative-config/-sc: Value {method:ngram} cannot be converted to"),
        ("bad_method", "SpeculativeConfig: method: Input should be 'ngram', 'medusa', 'mlp_speculator'"),
        (
            "no_tokens",
            (
                "SpeculativeConfig: num_speculative_tokens must be provided with speculative model unless the draft "
                "model config contains an n_predict parameter."
            ),
        ),
        ("bad_key", "SpeculativeConfig: banana: Unexpected keyword argument"),
        (
            "perreq_nospec",
            (
                "VllmConfig: --per-request-spec-decode-metrics requires speculative decoding to be enabled "
                "(via --speculative-config)."
            ),
        ),
        ("no_model", "huggingface_hub.errors.HFValidationError: Repo id must be in the form"),
        ("port_busy", "OSError: [Errno 98] Address already in use"),
        ("async_ngram", "VllmConfig: Currently, async scheduling is only supported with EAGLE/MTP/Draft Model"),
    ],
)
def test_real_failed_starts_of_0_32_give_their_reason_in_one_line(log: str, hint: str) -> None:
    text = (DATA / f"vllm_0.32_fails_{log}.txt").read_text(encoding="utf-8")
    found = failure_hint(text)
    assert found is not None
    assert found.startswith(hint)
    assert "\n" not in found
    assert len(found) <= 401
    assert failure_hint("\x1b[31m" + text.replace("\n", "\x1b[0m\r\n")) == found


ERROR = "(EngineCore_DP0 pid=9) ERROR 11-30 00:28:15 [core.py:708] "
ROOT = (
    "(APIServer pid=1) Traceback (most recent call last):\n"
    "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"
)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (
            (
                f"{ERROR}EngineCore failed to start.\n{ERROR}Traceback (most recent call last):\n"
                f"{ERROR}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total\n"
                f"{ERROR}Exception: WorkerProc initialization failed due to an exception in a background process. "
                f"See stack trace for root cause.\n{ROOT}ConnectionResetError: [Errno 104] Connection reset by peer\n"
            ),
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total",
        ),
        (
            (
                f"{ERROR}ValueError: Free memory on device (3.0/79.1 GiB) on startup is less than desired GPU memory "
                f"utilization (0.9, 71.2 GiB).\n{ROOT}"
            ),
            (
                "ValueError: Free memory on device (3.0/79.1 GiB) on startup is less than desired GPU memory "
                "utilization (0.9, 71.2 GiB)."
            ),
        ),
        (
            "ERROR:    [Errno 98] error while attempting to bind on address ('::1', 8000): address already in use\n",
            "ERROR:    [Errno 98] error while attempting to bind on address ('::1', 8000): address already in use",
        ),
        ("bash: line 1: vllm: command not found\n", "bash: line 1: vllm: command not found"),
        ("/usr/bin/python3: No module named vllm\n", "/usr/bin/python3: No module named vllm"),
        (
            (
                'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\n'
                "ImportError: libcuda.so.1: cannot open "
                "shared object file: No such file or directory\n"
            ),
            "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory",
        ),
        ("Traceback (most recent call last):\nAssertionError\n", "AssertionError"),
        ("loading\nKilled\n", "Killed: the kernel ended the process, most often for want of memory"),
        (ROOT, "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"),
        (
            "ValueError: 1\n\nDuring handling of the above exception, another exception occurred:\n\nKeyError: '2'\n",
            "KeyError: '2'",
        ),
    ],
)
def test_the_cause_is_preferred_to_its_consequences(text: str, hint: str) -> None:
    assert failure_hint(text) == hint


def test_a_good_start_gives_no_reason_though_it_prints_the_word_error() -> None:
    assert failure_hint((DATA / "vllm_0.32_ngram.txt").read_text(encoding="utf-8")) is None
    assert failure_hint("") is None
