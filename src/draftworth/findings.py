"""Everything Draftworth may remark about a trial, in one typed list, each with its advice.

A finding never hides in a number: it is stored in the record, printed and shown in the report.
`breach` overrides the verdict: it becomes `error`. `info` explains it. A `warning` says what to be careful with; only
these change a verdict:

- `foreign_requests` (in any arm but those that only measure), `client_saturated` (in the baseline or that variant),
  `speculation_off`, `prefix_cache_warmer` and `synthetic_acceptance` (in that variant) and `baseline_speculates` take
  *faster* and *slower* back to *inconclusive* (`verdicts.weaken`): something else was measured than what would be
  claimed. `prefix_cache_colder` takes *slower* alone back.
- `output_suspect` and `output_unchecked` take *faster* back to *inconclusive*, unless the check was switched off.
"""

from enum import StrEnum
from typing import Literal

from draftworth.models import Frozen

Severity = Literal["info", "warning", "breach"]


class Code(StrEnum):
    """What can be found. The value is stable: scripts may match on it."""

    COUNTER_RESET = "counter_reset"
    FOREIGN_REQUESTS = "foreign_requests"
    METRICS_MISSING = "metrics_missing"
    COUNTS_DISAGREE = "counts_disagree"
    PER_REQUEST_UNREADABLE = "per_request_unreadable"
    TOKENS_DISAGREE = "tokens_disagree"
    NOTHING_DRAFTED = "nothing_drafted"
    BASELINE_DRIFT = "baseline_drift"
    BASELINE_SPECULATES = "baseline_speculates"
    FEW_PAIRS = "few_pairs"
    FEW_STARTS = "few_starts"
    REQUESTS_FAILED = "requests_failed"
    LENGTHS_DIFFER = "lengths_differ"
    APPROXIMATE_TOKENS = "approximate_tokens"
    SPECULATION_OFF = "speculation_off"
    OUTPUT_DIVERGED = "output_diverged"
    OUTPUT_SUSPECT = "output_suspect"
    OUTPUT_UNCHECKED = "output_unchecked"
    CONFOUNDED = "confounded"
    LEFTOVERS = "leftovers"
    CLIENT_SATURATED = "client_saturated"
    PREFIX_CACHE_WARMER = "prefix_cache_warmer"
    PROMPTS_RANDOM = "prompts_random"
    PROMPTS_REPEAT = "prompts_repeat"
    IGNORE_EOS = "ignore_eos"
    SYNTHETIC_ACCEPTANCE = "synthetic_acceptance"
    BLOCK_DRIFT = "block_drift"
    CLOCKS_CHANGED = "clocks_changed"
    REQUESTS_RETRIED = "requests_retried"
    ENDED_EARLY = "ended_early"
    ARRIVALS_LATE = "arrivals_late"
    LIMIT_NEVER_MET = "limit_never_met"
    LENGTH_SHORT = "length_short"
    LOAD_NOT_REACHED = "load_not_reached"
    ROUNDS_LEFT_OUT = "rounds_left_out"
    METRICS_CUT = "metrics_cut"
    METRICS_UNREADABLE = "metrics_unreadable"
    SEVERAL_MODELS = "several_models"
    COUNTS_CONTRADICT = "counts_contradict"
    LINES_UNREADABLE = "lines_unreadable"
    SEVERAL_STARTS = "several_starts"
    PARTIAL_RANKS = "partial_ranks"
    LIFETIME_AVERAGE = "lifetime_average"
    NOT_COUNTED = "not_counted"
    NOT_COMPARED = "not_compared"
    WINDOWS_NOT_LISTED = "windows_not_listed"
    NO_SPECULATION_SEEN = "no_speculation_seen"
    SEVERAL_SERVERS = "several_servers"
    NOT_READ = "not_read"
    START_FAILED = "start_failed"
    ITERATIONS_LOST = "iterations_lost"
    INEXACT_TRACE = "inexact_trace"
    ORDER_MATTERS = "order_matters"
    FEW_REQUESTS = "few_requests"
    SAMPLED_TRACE = "sampled_trace"
    THINKING_NOT_KNOWN = "thinking_not_known"
    REQUESTS_REPEAT = "requests_repeat"
    NOT_PROBED = "not_probed"
    NOT_PROFILED = "not_profiled"
    DIAGNOSTIC_FAILED = "diagnostic_failed"
    DRAFTS_REMEMBERED = "drafts_remembered"
    SAMPLED_DIVERGED = "sampled_diverged"
    SETTING_FAILED = "setting_failed"
    PREFIX_CACHE_COLDER = "prefix_cache_colder"


_ADVICE: dict[Code, tuple[Severity, str]] = {
    Code.SETTING_FAILED: (
        "info",
        "the search went on without it; its log is in the trial's folder",
    ),
    Code.DIAGNOSTIC_FAILED: (
        "info",
        "the verdict needs none of it; the explanation takes the engine's mode from elsewhere, with a wider interval",
    ),
    Code.NOT_PROFILED: (
        "info",
        "the verdict needs none; see docs/profiles.md for profiles made by hand",
    ),
    Code.NOT_PROBED: (
        "info",
        "what verifying drafts costs is estimated in the explanation; `draftworth probe URL` measures it at any time",
    ),
    Code.METRICS_CUT: (
        "warning",
        "what stands before the cut is read, and a count that lacks its end is not given; fetch the page again whole",
    ),
    Code.METRICS_UNREADABLE: (
        "warning",
        "these lines were left out and a count that needs them is not given; see who wrote them (a proxy, an exporter)",
    ),
    Code.SEVERAL_MODELS: (
        "warning",
        "their counts were added, which says nothing of either; read one with --model, or one server at a time",
    ),
    Code.COUNTS_CONTRADICT: (
        "warning",
        "figures made of them are not given; the engine, a proxy or an edited file counts wrongly",
    ),
    Code.LINES_UNREADABLE: (
        "warning",
        "these lines look like figures of speculation and could not be read; they are in no count",
    ),
    Code.SEVERAL_STARTS: (
        "info",
        "version, configuration and warnings are those of the last start",
    ),
    Code.PARTIAL_RANKS: (
        "warning",
        "the figure is of one rank of several; read every rank's, or counts that are summed over ranks",
    ),
    Code.LIFETIME_AVERAGE: (
        "info",
        "an average since the start or the last reset cannot be split into before and after; use differences of counts",
    ),
    Code.NOT_COUNTED: (
        "warning",
        "this release exports the counter and does not fill it; zero means not known here",
    ),
    Code.NOT_COMPARED: (
        "info",
        "the arms' engines count in different ways, so the figure is shown for each and compared for none",
    ),
    Code.WINDOWS_NOT_LISTED: ("info", "older windows are in the sums, and are not listed one by one; see --windows"),
    Code.SEVERAL_SERVERS: (
        "warning",
        "their counts are not added; --only TEXT reads the lines that hold a text, such as one server's pid=812",
    ),
    Code.NOT_READ: (
        "info",
        "what is said of the server is by its command and its release alone; start it, or name its log",
    ),
    Code.START_FAILED: ("warning", "the log ends in a start that failed; see what the line says"),
    Code.ITERATIONS_LOST: (
        "warning",
        "the page holds only the newest iterations, and reading it empties it; read it more often, or the counters",
    ),
    Code.NO_SPECULATION_SEEN: (
        "info",
        "nothing here tells of drafted tokens; is speculation on, and is this the log or page of the serving engine?",
    ),
    Code.COUNTER_RESET: (
        "warning",
        "the server was started anew or its counters were reset in between, so there are no counts: measure again",
    ),
    Code.FOREIGN_REQUESTS: (
        "warning",
        "somebody else used the server while it was measured; run the trial when it is idle, or drain it first",
    ),
    Code.METRICS_MISSING: (
        "warning",
        (
            "acceptance is not known; make the server's metrics reachable (vLLM: without --disable-log-stats; SGLang: "
            "--enable-metrics; llama.cpp: --metrics; TensorRT-LLM: return_perf_metrics)"
        ),
    ),
    Code.COUNTS_DISAGREE: (
        "warning",
        "the server's totals and its per-request figures differ; trust the ratio of TPOT, not the acceptance",
    ),
    Code.PER_REQUEST_UNREADABLE: (
        "warning",
        "this release sends its per-request figures in another form; the acceptance from the server's totals stands",
    ),
    Code.TOKENS_DISAGREE: (
        "warning",
        "the server's usage and the token ids it sent count differently; times per token rest on the usage",
    ),
    Code.NOTHING_DRAFTED: (
        "warning",
        "the variant never drafted a token: this measures what switching speculation on costs, not what it gains",
    ),
    Code.BASELINE_DRIFT: (
        "warning",
        "the baseline itself changed between its two measurements; look for other load, clocks or heat, and repeat",
    ),
    Code.BASELINE_SPECULATES: (
        "warning",
        "the baseline drafts tokens too; this compares two ways to speculate, not speculation with none",
    ),
    Code.FEW_PAIRS: (
        "info",
        "with few prompts intervals are wide or missing; send more (prompts_per_category, or more of your own)",
    ),
    Code.FEW_STARTS: (
        "info",
        "an arm was started fewer than three times, so its part of the interval is the stated restart prior",
    ),
    Code.REQUESTS_FAILED: ("warning", "failed requests are kept as rows and left out of every time"),
    Code.LENGTHS_DIFFER: (
        "info",
        "the arms wrote different numbers of tokens; TPOT is per token, so the ratio stands, but means differ",
    ),
    Code.APPROXIMATE_TOKENS: (
        "warning",
        "the server reported neither usage nor token ids; tokens were approximated and every time per token with them",
    ),
    Code.SPECULATION_OFF: (
        "warning",
        "the server started without the speculation it was asked for; see the log line named here",
    ),
    Code.OUTPUT_DIVERGED: (
        "breach",
        "the variant writes tokens the baseline model would not: do not adopt it, whatever its speed",
    ),
    Code.SAMPLED_DIVERGED: (
        "breach",
        "the variant samples from another distribution than the baseline: do not adopt it, whatever its speed",
    ),
    Code.OUTPUT_SUSPECT: (
        "warning",
        "a few of the variant's tokens lie beyond near ties, too few to be sure; repeat with more prompts",
    ),
    Code.OUTPUT_UNCHECKED: (
        "warning",
        "the variant's output was not checked against the baseline; do not adopt it on speed alone",
    ),
    Code.CONFOUNDED: (
        "warning",
        "the arms differ, or may differ, in more than what was declared; part of the difference may come from this",
    ),
    Code.CLIENT_SATURATED: (
        "warning",
        (
            "the client could not keep up, so its times are its own and not the server's; lower the concurrency, "
            "or run it on a machine with a free core"
        ),
    ),
    Code.PREFIX_CACHE_WARMER: (
        "warning",
        (
            "the server had more of the prompts in its prefix cache in one arm, or at one point, which makes it look "
            "faster; repeat with a fresh server in each arm, or with more prompts and one repeat"
        ),
    ),
    Code.PREFIX_CACHE_COLDER: (
        "info",
        (
            "the baseline's server had more of the prompts in its prefix cache than the variant's, which makes the "
            "variant look slower: it is not called slower for that"
        ),
    ),
    Code.DRAFTS_REMEMBERED: (
        "warning",
        (
            "it drafts the whole answer again, which new prompts would not give it: measure one load a trial with "
            "workload.repeats = 1, on a server that has just started, unless your users repeat themselves like this"
        ),
    ),
    Code.PROMPTS_RANDOM: (
        "warning",
        (
            "the prompts look like random tokens; drafters guess those worse than real text, so acceptance is "
            "understated: measure with recorded traffic"
        ),
    ),
    Code.PROMPTS_REPEAT: (
        "warning",
        (
            "the prompts repeat themselves like filler; drafters guess that better than real text, so acceptance "
            "is overstated: measure with recorded traffic"
        ),
    ),
    Code.IGNORE_EOS: (
        "warning",
        (
            "answers were forced past their end, where models repeat themselves; acceptance there is not your "
            "traffic's: measure without ignore_eos"
        ),
    ),
    Code.SYNTHETIC_ACCEPTANCE: (
        "warning",
        (
            "the server accepts drafts by a configured rate, not by what its model says; its text is meaningless "
            "and its speed is a what-if: never adopt this arm"
        ),
    ),
    Code.BLOCK_DRIFT: (
        "warning",
        "an arm changed while it was measured; look for other load, clocks or heat, and repeat",
    ),
    Code.CLOCKS_CHANGED: (
        "warning",
        (
            "the processor or the GPU changed its clocks, or throttled, between measurements; cool it or fix the "
            "clocks, and repeat"
        ),
    ),
    Code.REQUESTS_RETRIED: (
        "warning",
        "requests that were sent again are answered but left out of every time; lower the load",
    ),
    Code.ENDED_EARLY: (
        "info",
        "the evidence was enough before everything planned was measured; the error rate is kept",
    ),
    Code.ARRIVALS_LATE: (
        "warning",
        "requests left later than they were due, so the load was lower than stated; lower the rate, or use a free core",
    ),
    Code.LIMIT_NEVER_MET: (
        "warning",
        "no request of an arm met the stated limits, so goodput has no ratio; state looser limits, or lower the load",
    ),
    Code.LOAD_NOT_REACHED: (
        "warning",
        "there were too few requests to keep the load up, so this is not the load it is named by; send more of them",
    ),
    Code.ROUNDS_LEFT_OUT: (
        "warning",
        "fewer starts were measured than planned; raise limits.downtime_s for more",
    ),
    Code.LENGTH_SHORT: (
        "info",
        "answers ended before the length the point asks for; the point is named by its limit, not by what was written",
    ),
    Code.INEXACT_TRACE: (
        "warning",
        "the server's own ids may differ, so acceptance is an estimate; record the ids with `draftworth trace record`",
    ),
    Code.ORDER_MATTERS: (
        "info",
        (
            "this drafter learns from one request for the next, so the order of the recording and --concurrency "
            "change its counts; replay at the concurrency of your service"
        ),
    ),
    Code.FEW_REQUESTS: ("info", "intervals over few requests are wide and rough; record more of them"),
    Code.SAMPLED_TRACE: (
        "info",
        (
            "at a temperature above 0 each step accepts as often as the recording says on average, not the very "
            "same tokens: a draft of one fixed token is accepted with that token's probability"
        ),
    ),
    Code.REQUESTS_REPEAT: (
        "warning",
        (
            "a benchmark that sends its prompts again is no traffic: intervals are too narrow, and a drafter that "
            "learns across requests finds the whole answer again; record each prompt once, unless users do repeat"
        ),
    ),
    Code.THINKING_NOT_KNOWN: (
        "info",
        "thinking and answers cannot be told apart there; record with a server that tells reasoning tokens",
    ),
    Code.LEFTOVERS: ("warning", "something of a stopped server stayed behind and was removed, or is named here"),
}


class Finding(Frozen):
    """One remark, with what to do about it."""

    code: Code
    severity: Severity
    message: str
    """What was seen, with figures."""
    advice: str
    arm: str | None = None
    """The arm it was seen in, or None for the trial as a whole."""
    accounts_for: float | None = None
    """How much of a change of that arm's TPOT is put down to it, as a logarithm of the ratio: an allowance on the safe
    side of what is expected; None where nothing is known, and then it may be any."""


def find(code: Code, message: str, *, arm: str | None = None, accounts_for: float | None = None) -> Finding:
    """Build a finding with the severity and advice its code always has."""
    severity, advice = _ADVICE[code]
    return Finding(code=code, severity=severity, message=message, advice=advice, arm=arm, accounts_for=accounts_for)
