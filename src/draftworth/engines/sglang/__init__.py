"""SGLang: its flags, log lines, pages, metrics and per-request figures.

`adapter.py` is the engine; `command.py`, `layout.py` and `flags.py` handle commands; `log.py`, `phases.py`,
`log_warnings.py`, `log_lines.py`, `spec_lines.py`, `server_args.py` and `failures.py` read logs; `metrics.py`,
`pages.py` and `per_request.py` read figures; `releases.py` and `known.py` hold what changed between releases;
`doubts.py`, `doubts_algorithms.py` and `planned.py` look at a planned arm; `confounders.py` compares two starts;
`version.py` asks an installation.
"""

from draftworth.engines.placing import PLACEHOLDER
from draftworth.engines.sglang.adapter import SGLang

__all__ = ["PLACEHOLDER", "SGLang"]
