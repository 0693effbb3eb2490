"""vLLM: its flags, log lines, metrics and per-request figures.

`adapter.py` is the engine; `command.py`, `layout.py` and `flags.py` handle commands; `log.py`, `phases.py`,
`log_warnings.py`, `config_text.py`, `log_lines.py` and `failures.py` read logs; `metrics.py` and `per_request.py` read
counts; `confounders.py` compares two starts; `version.py` asks an installation.
"""

from draftworth.engines.placing import PLACEHOLDER
from draftworth.engines.vllm.adapter import VLLM
from draftworth.engines.vllm.metrics import generated_tokens, prompt_tokens

__all__ = ["PLACEHOLDER", "VLLM", "generated_tokens", "prompt_tokens"]
