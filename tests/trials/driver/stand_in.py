"""What answers as the agent on another machine in tests of the client: a log, and connections that end in the middle.

    python stand_in.py agent VERB < REQUEST

Its folder ($STAND_IN) holds `log` (lines of JSON), `cuts` (how many events each connection gives, one number a line),
`requests` (what was asked so far) and `answers` (VERB to a list of lines to print).
"""

import json
import os
import sys
from pathlib import Path


def main() -> int:
    folder = Path(os.environ["STAND_IN"])
    verb, asked = sys.argv[2], json.loads(sys.stdin.read())
    with (folder / "requests").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"verb": verb, **asked}) + "\n")
    answers = json.loads((folder / "answers").read_text(encoding="utf-8")) if (folder / "answers").exists() else {}
    if verb in answers:
        line, code = answers[verb].pop(0) if len(answers[verb]) > 1 else answers[verb][0]
        (folder / "answers").write_text(json.dumps(answers), encoding="utf-8")
        sys.stdout.write(line)
        return int(code)
    return events(folder, int(asked.get("offset", 0)))


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def events(folder: Path, offset: int) -> int:
    cuts = [int(one) for one in (folder / "cuts").read_text(encoding="utf-8").split()]
    (folder / "cuts").write_text("\n".join(map(str, cuts[1:])), encoding="utf-8")
    left = cuts[0] if cuts else 10**9
    say(json.dumps({"kind": "trial", "id": "20260101-000000", "own": True}))
    say(json.dumps({"kind": "line", "text": "the same over each connection", "own": True}))
    at = 0
    for line in (folder / "log").read_bytes().splitlines(keepends=True):
        at += len(line)
        if at <= offset:
            continue
        if not left:
            return 137
        left -= 1
        say(json.dumps({**json.loads(line), "at": at}))
    if not left:
        return 137
    say(json.dumps({"kind": "end", "exit": 0, "text": "", "commands": []}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
