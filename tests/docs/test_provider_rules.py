"""The page of the rules of the providers is what the validator checks."""

from __future__ import annotations

import pytest

from perdure.providers.validator import anthropic, bedrock, gemini, openai_chat, openai_responses
from perdure.providers.validator.rule import Rule
from tests.docs.tables import page

TITLES = {
    "Anthropic Messages": anthropic.RULES,
    "Chat Completions": openai_chat.RULES,
    "OpenAI Responses": openai_responses.RULES,
    "Gemini generateContent": gemini.RULES,
    "Bedrock Converse": bedrock.RULES,
    "Mistral": openai_chat.MISTRAL_RULES,
}


@pytest.mark.parametrize("title", TITLES)
def test_every_rule_is_on_the_page_as_it_is_in_the_code(title: str) -> None:
    """Code, level and sentence, in order."""
    (section,) = [each for each in page("reference/provider-rules.md") if each.title == title]
    (table,) = section.tables

    assert table.rows == [row(rule) for rule in TITLES[title]]


def test_the_rules_that_others_share_are_named() -> None:
    """Those of Chat that Mistral and Azure have too."""
    (section,) = [each for each in page("reference/provider-rules.md") if each.title == "Chat Completions"]

    assert ", ".join(rule.code for rule in openai_chat.SHARED) in section.text


def row(rule: Rule) -> list[str]:
    """A rule as a row of its table."""
    return [rule.code, rule.level, rule.demand]
