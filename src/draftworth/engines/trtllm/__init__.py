"""TensorRT-LLM's `trtllm-serve`: its options, log lines, metrics, JSON pages and per-request figures.

`adapter.py` is the engine; `layout.py`, `command.py` and `version.py` handle commands, `options.py` and
`yaml_faults.py` the YAML file that configures speculation; `log.py`, `log_lines.py`, `spec_lines.py`, `config_text.py`
and `failures.py` read logs; `metrics.py` and `gauges.py` read `/prometheus/metrics`, `pages.py` and `perf_page.py` the
JSON pages, `per_request.py` answers; `releases.py`, `planned.py`, `doubts.py` and `measuring.py` know what releases
take and tell; `confounders.py` compares two starts.
"""

from draftworth.engines.placing import PLACEHOLDER
from draftworth.engines.trtllm.adapter import TensorRTLLM

__all__ = ["PLACEHOLDER", "TensorRTLLM"]
