"""An ordinary agent loop, for comparison: a transcript in a JSON file, saved at every step.

It is careful: it saves what the model asked for before the tool runs, and what the tool gave
back right after.  Started again, it runs the call that has no result.

python -m perdure.cli.commands.demo.naive_agent TRANSCRIPT BANK WORDS [slow]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from perdure.cli.commands.demo.bank import Bank
from perdure.cli.commands.demo.scripted_model import answer

__all__ = ["loop"]


def loop(transcript: Path, bank: Bank, words: str) -> None:
    """Do what the words ask for, from the last message of the transcript."""
    messages: list[dict[str, Any]] = [{"role": "user", "text": words}]
    if transcript.exists():
        messages = json.loads(transcript.read_text(encoding="utf-8"))
    while messages[-1]["role"] != "assistant" or "call" in messages[-1]:
        last = messages[-1]
        if "call" in last:
            paid = bank.pay(**last["call"], reference="-")
            messages.append({"role": "tool", "text": paid})
        else:
            said, call = answer(words, has_result=last["role"] == "tool")
            messages.append({"role": "assistant", "text": said, **({"call": call} if call else {})})
        transcript.write_text(json.dumps(messages), encoding="utf-8")


if __name__ == "__main__":
    loop(Path(sys.argv[1]), Bank(Path(sys.argv[2]), slow="slow" in sys.argv[4:]), sys.argv[3])
