"""`draftworth train`: the registry of its verbs, each in a file beside this one."""

from cyclopts import App

from draftworth.cli.train_data import data
from draftworth.cli.train_eval import eval_
from draftworth.cli.train_export import export
from draftworth.cli.train_fit import fit
from draftworth.cli.train_install import install
from draftworth.cli.train_plan import plan, schema
from draftworth.cli.train_run import run
from draftworth.cli.train_states import states
from draftworth.cli.train_vocab import vocab

app = App(
    name="train",
    help="An EAGLE-3 head from your own traffic: plan, data, states, vocab, fit, eval, export, run.",
    help_format="markdown",
)
for _verb in (schema, install, plan, data, states, vocab, fit, export, run):
    app.command(_verb)
app.command(eval_, name="eval")
