"""The pages about providers say what the code does: capabilities, formats, backends, extras, and where servers are.

`python -m tests.docs.test_providers` prints the table of capabilities as the page has to have it.
"""

from __future__ import annotations

import re
import tomllib

from perdure.providers import adapter, registry
from perdure.providers.capabilities import MEANINGS, Capability
from perdure.providers.openai_chat.transport import PLACES
from tests.docs.blocks import ROOT
from tests.docs.tables import Table, codes, page

REFERENCE, BACKENDS = "reference/providers.md", "how-to/use-a-backend.md"
TITLES = {
    "openai-responses": "OpenAI Responses",
    "openai-chat": "OpenAI Chat Completions",
    "anthropic-messages": "Anthropic Messages",
    "gemini-generate": "Gemini generateContent",
    "bedrock-converse": "Bedrock Converse",
    "mistral-chat": "Mistral",
    "azure-inference-chat": "Foundry model inference",
    "ollama-chat": "Ollama",
    "gemini-interactions": "Gemini Interactions",
}


def table(name: str, title: str) -> Table:
    """The first table of a section."""
    (section,) = [each for each in page(name) if each.title == title]
    return section.tables[0]


def capabilities() -> list[list[str]]:
    """The rows that the table has to have."""
    return [
        [f"`{each}`", *(adapter(api).supports(each) for api in TITLES), MEANINGS[each].removesuffix(".")]
        for each in Capability
    ]


def test_the_table_of_capabilities_is_that_of_the_code() -> None:
    """Name by name, format by format."""
    documented = table(REFERENCE, "Capabilities")

    assert [codes(cell)[0] for cell in documented.head[1:-1]] == list(TITLES)
    assert documented.rows == capabilities(), "python -m tests.docs.test_providers prints what it has to be"


def test_every_format_has_its_tables() -> None:
    """One row in the list of formats, one section with what is kept, converted and left out."""
    assert [codes(row[0])[0] for row in page(REFERENCE)[0].tables[0].rows] == list(TITLES)
    assert set(TITLES) == set(registry.APIS)
    for api, title in TITLES.items():
        (section,) = [each for each in page(REFERENCE) if each.title == title]
        assert f"`{api}`" in section.text
        assert section.tables[0].head == ["", "kept", "converted", "left out or refused"]


def test_every_name_of_a_backend_is_told() -> None:
    """With its wire format and, for a compatible server, its address and the variable of its key."""
    documented = {
        name: codes(row[1])[0]
        for title in ("Vendors", "Compatible servers")
        for row in table(BACKENDS, title).rows
        for name in codes(row[0])
    }

    assert documented == {name: api for name, (api, _) in registry.providers().items()}


def test_every_server_is_where_the_page_says() -> None:
    """The address and the variable, or that an address has to be given."""
    for row in table(BACKENDS, "Compatible servers").rows:
        for name in codes(row[0]):
            place = PLACES.get(name)
            address = place.base_url if place else ""
            assert row[2] == (f"`{address}`" if address else "given by you" if name != "local" else "here")
            key = place.key if place else ""
            assert row[3] == (f"`{key}`" if key and name != "local" else ""), name


def test_every_extra_exists() -> None:
    """As `pip install perdure[…]` on the page."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = (ROOT / "docs" / BACKENDS).read_text(encoding="utf-8")
    named = set(re.findall(r"perdure\[(\w+)\]", text))

    assert named <= set(project["optional-dependencies"])
    assert {"openai", "anthropic", "google", "bedrock", "mistral", "foundry", "local"} <= named


def main() -> None:
    """Print the table of capabilities."""
    print("| capability | " + " | ".join(f"`{api}`" for api in TITLES) + " | meaning |")
    print("|---" * (len(TITLES) + 2) + "|")
    for row in capabilities():
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
