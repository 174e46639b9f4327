"""Tools by the names that vendors make of theirs."""

from __future__ import annotations

import msgspec

import perdure
from perdure import Agent, Tool
from perdure.runtime.inference.backend import declared_names
from perdure.testing import Script, say, use


@perdure.tool(name="mail.send", effect="none")
def send(to: str) -> str:
    """Send."""
    return f"sent to {to}"


def test_a_tool_is_found_by_the_name_that_a_vendor_made_of_it() -> None:
    """Few formats take a dot in a name; the call is still that of the declared tool."""
    thread = perdure.open("memory:").thread(
        "t", agent=Agent("a", backend=Script(use("mail_send", to="ann"), say("Done.")), tools=[send])
    )

    thread.run("Write to Ann")

    assert [(call.tool, call.state) for call in thread.calls()] == [("mail.send", "succeeded")]


def tools(*names: str) -> dict[str, Tool]:
    """Tools of these names."""
    return {name: msgspec.structs.replace(send, name=name) for name in names}


def test_a_made_name_that_could_mean_two_tools_means_none() -> None:
    """Nothing is guessed: another tool than the one that was meant must never run."""
    assert declared_names(tools("a.b", "a/b")) == {}
    assert declared_names(tools("a.b", "a_b")) == {}
    assert declared_names(tools("a.b", "c")) == {"a_b": "a.b"}
