"""llama.cpp's server: its flags, log lines, metrics, pages and per-request timings.

`adapter.py` is the engine; `releases.py` says which build first had what; `command.py`, `config_flags.py`, `flags.py`
and `layout.py` handle commands; `log.py`, `log_lines.py`, `log_warnings.py` and `failures.py` read logs;
`spec_lines.py`, `metrics.py`, `rounding.py`, `per_request.py` and `pages.py` read counts; `doubts.py`,
`doubts_costs.py`, `doubts_values.py`, `known.py`, `planned.py` and `gives.py` judge what is planned; `confounders.py`
compares two starts; `version.py` asks an installation.
"""

from draftworth.engines.llamacpp.adapter import LlamaCpp

__all__ = ["LlamaCpp"]
