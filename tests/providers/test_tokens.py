"""Counting tokens: exact with a tokenizer, estimated with a margin without, never a crash."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import Request, urlopen

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import PerdureError
from perdure.model.context import Context, ToolSpec
from perdure.model.message import File, Image, Message, ReasoningSummary, Text, ToolCall, ToolResult
from perdure.providers import tokens
from perdure.providers.local.serving import serve
from perdure.providers.token_measures import FAMILIES, family, units
from perdure.providers.tokens import LlamaServer

WORDS = "The quick brown fox jumps over the lazy dog, and then it rests for 120 minutes."


def asked(*blocks: Text | Image | File | ReasoningSummary, **more: Any) -> Context:
    """A request with one message."""
    return Context(messages=[Message("user", tuple(blocks))], **more)


@pytest.fixture
def tiktoken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A stand-in for tiktoken, with a token a character; gives the folder of its vocabularies."""
    encoding = SimpleNamespace(name="o200k_base", encode_ordinary=list)
    stand_in = SimpleNamespace(
        encoding_name_for_model={"gpt-5.6": "o200k_base"}.__getitem__, get_encoding=lambda _: encoding
    )
    monkeypatch.setitem(sys.modules, "tiktoken", stand_in)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    tokens._tiktoken.cache_clear()
    return tmp_path


def test_an_estimate_says_whose_it_is_and_how_far_off_it_may_be() -> None:
    """For a text of ordinary words it is near the number of words and marks."""
    counted = tokens.count(WORDS, model="anthropic:claude-sonnet-5-5")

    assert not counted.exact
    assert counted.how == "estimated for Claude from Opus 4.7 on"
    assert counted.count - counted.margin <= 20 <= counted.most


def test_a_request_is_more_than_its_words() -> None:
    """Messages, calls, tools and schemas add to it."""
    bare = tokens.count(asked(Text(WORDS)), model="openai:gpt-5.6")
    tool = ToolSpec(name="look", description="Look it up.", parameters={"type": "object", "properties": {}})
    call = Message("assistant", tool_calls=(ToolCall("c1", "look", "{}"),))
    result = Message("tool", tool_results=(ToolResult("c1", "success", (Text("found"),)),))
    schema = {"output": {"schema": {"type": "object", "properties": {"name": {"type": "string"}}}}}

    assert bare.count > tokens.count(WORDS, model="openai:gpt-5.6").count
    for more in (
        asked(Text(WORDS), system="Be brief."),
        asked(Text(WORDS), tools=[tool]),
        asked(Text(WORDS), options=schema),
        Context(messages=[Message("user", (Text(WORDS),)), call, result]),
    ):
        assert tokens.count(more, model="openai:gpt-5.6").count > bare.count


def test_told_thinking_is_not_counted() -> None:
    """No vendor takes it back as words."""
    bare = tokens.count(asked(Text(WORDS)), model="openai:gpt-5.6")

    assert tokens.count(asked(Text(WORDS), ReasoningSummary(WORDS * 9)), model="openai:gpt-5.6") == bare


def test_pictures_and_files_are_guessed_at_and_said() -> None:
    """The margin is as large as the guess."""
    counted = tokens.count(
        asked(Image("https://example.org/a.png", "image/png"), File("file-id://x/1", "application/pdf")),
        model="openai:gpt-5.6",
    )

    assert counted.count >= 4_000
    assert counted.margin >= 4_000
    assert "1 images at 1000 each; 1 files at 3000 each" in counted.how


def test_sealed_reasoning_widens_the_margin() -> None:
    """No vendor says how many tokens a signature has."""
    sealed = json.dumps({"google": {"thoughtSignature": "A" * 4_000}})
    counted = tokens.count(
        Context(messages=[Message("assistant", (Text(WORDS),), vendor_metadata=sealed)]), model="gemini-3-pro"
    )

    assert counted.margin > 1_000 > counted.count
    assert "sealed reasoning" in counted.how


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("openai:gpt-5", "GPT-5"),
        ("gpt-5-mini-2025-08-07", "GPT-5"),
        ("openai:gpt-5.1", "GPT"),
        ("o3", "GPT"),
        ("groq:openai/gpt-oss-120b", "gpt-oss"),
        ("bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0", "Claude 4.5 and 4.6"),
        ("anthropic/claude-haiku-4.5", "Claude 4.5 and 4.6"),
        ("anthropic:claude-3-5-haiku-20241022", "Claude up to 4.1"),
        ("anthropic:claude-sonnet-4-20250514", "Claude up to 4.1"),
        ("anthropic:claude-opus-4-8", "Claude from Opus 4.7 on"),
        ("anthropic:claude-haiku-5-5", "Claude from Opus 4.7 on"),
        ("google:gemini-4-argon", "Gemini"),
        ("bedrock:amazon.nova-2-lite-v1:0", "Nova 2"),
        ("bedrock:amazon.nova-lite-v1:0", "Nova"),
        ("xai:grok-4.7", "Grok from 4.3 on"),
        ("xai:grok-4-fast", "Grok"),
        ("mistral:mistral-large-latest", "Mistral"),
        ("together:mistralai/Mixtral-8x7B-Instruct-v0.1", "Mistral"),
        ("llama.cpp:qwen3", "Qwen"),
        ("ollama:llama3.1", "Llama"),
        ("local:model.gguf", "models of no known family"),
        ("", "models of no known family"),
    ],
)
def test_a_family_is_known_by_the_models_name(model: str, name: str) -> None:
    """On every server."""
    assert family(model).name == name


def test_every_margin_leaves_room() -> None:
    """No family claims to be better than tokenizers are alike."""
    for each in FAMILIES:
        assert each.margin(1_000, tooled=False) >= 120
        assert each.margin(1_000, tooled=True) >= 150


def test_more_text_is_never_fewer_tokens() -> None:
    """In any script, in code, in base64."""
    for text in (
        WORDS,
        "敏捷的棕色狐狸跳过了懒狗。",
        "Быстрая лиса",
        "👩‍👩‍👧‍👦🚀",
        "def f(x):\n\treturn x\n",
        "QUJD" * 50,
    ):
        assert 0 < units(text) < units(text * 2)
        assert units(text) <= 2.5 * len(text)


def units_by_patterns(text: str) -> float:
    """The definition of a unit, one pattern for each kind of run."""
    words = re.findall(r"[A-Za-z]+", text)
    return (
        0.966 * len(words)
        + sum(0.146 * max(0, len(word) - 7) + 0.25 * max(0, len(word) - 20) for word in words)
        + 0.5 * len(re.findall(r"[a-z][A-Z]|[A-Z]{3}", text))
        + 1.5 * len(re.findall(r"[0-9]{1,3}", text))
        + sum(0.88 + 0.284 * max(0, len(run) - 2) for run in re.findall(r"[!-/:-@\[-`{-~]+", text))
        + sum(0.363 + len(run) / 80 for run in re.findall(r"[^\S\n]{2,}", text))
        + sum(0.617 + len(run) / 80 for run in re.findall(r"\n+", text))
        + 0.42 * len(re.findall("[\u0080-\u1fff]", text))
        + 0.908 * len(re.findall("[\u2000-\uffff]", text))
        + 2.0 * len(re.findall("[\U00010000-\U0010ffff]", text))
    )


PIECES = st.text(alphabet=st.characters(codec=None), max_size=3) | st.sampled_from(
    [
        "aB",
        "ABC",
        "word",
        "Words",
        "x" * 25,
        "1",
        "2345",
        " ",
        "  ",
        "\t",
        "\n",
        "\r\n",
        "\x1c",
        "\x7f",
        "\xa0",
        "{}",
    ]
)


@given(st.lists(PIECES, max_size=40).map("".join))
def test_shapes_count_as_many_units_as_patterns(text: str) -> None:
    """Counting runs by their shape is quicker than searching for them, and counts the same."""
    assert units(text) == pytest.approx(units_by_patterns(text))


@given(st.text(alphabet=st.characters(codec=None), max_size=300), st.text(max_size=40))
def test_no_text_is_too_odd_to_be_counted(text: str, model: str) -> None:
    """Lone surrogates, control characters, nothing at all."""
    counted = tokens.count(text, model=model)

    assert counted.count >= 0
    assert counted.margin >= 0
    assert tokens.count(asked(Text(text)), model=model).count >= 0


def test_large_texts_are_counted_in_time() -> None:
    """Five million characters, hostile ones too."""
    for text in (WORDS * 10_000, "a" * 1_000_000, "!" * 1_000_000, "aA" * 500_000, " " * 1_000_000):
        assert tokens.count(text, model="openai:gpt-5.6").count > 0


def test_schemas_that_are_no_json_are_counted_too() -> None:
    """As the words that they are."""
    loop: dict[str, Any] = {}
    loop["self"] = loop
    tool = ToolSpec(name="odd", parameters={"x": object()})  # pyright: ignore[reportArgumentType]

    assert tokens.count(asked(tools=[tool]), model="openai:gpt-5.6").count > 0
    assert tokens.count(asked(options={"output": {"schema": loop}}), model="openai:gpt-5.6").count > 0


def test_a_text_is_exact_where_the_vocabulary_is_on_disk(tiktoken: Path) -> None:
    """Under the name that tiktoken itself gives the file."""
    (tiktoken / "fb374d419588a4632f3f557e76b4b70aebbca790").write_bytes(b"")

    assert tokens.count("words", model="openai:gpt-5.6") == tokens.Tokens(
        count=5, margin=0, exact=True, how="tiktoken o200k_base"
    )
    assert tokens.count("\ud800", model="openai:gpt-5.6").exact
    request = tokens.count(asked(Text("words")), model="openai:gpt-5.6")
    assert not request.exact
    assert request.how.startswith("tiktoken o200k_base for the words")


def test_nothing_is_fetched_to_count(tiktoken: Path) -> None:
    """Without the file it is an estimate, as for a model that tiktoken does not know."""
    assert not list(tiktoken.iterdir())
    assert not tokens.count("words", model="openai:gpt-5.6").exact
    assert not tokens.count("words", model="openai:gpt-99").exact


def test_a_tokenizer_may_be_given() -> None:
    """Whatever keeps the contract; one that cannot say leaves it to the estimate."""

    class Letters:
        name = "letters"

        def text(self, text: str) -> int | None:
            return len(text) or None

        def request(self, context: Context) -> int | None:
            return 7 if context.system else None

    assert tokens.count("words", model="x", tokenizer=Letters()).count == 5
    assert not tokens.count("", model="x", tokenizer=Letters()).exact
    assert tokens.count(asked(system="s"), model="x", tokenizer=Letters()).exact
    assert not tokens.count(asked(Text("words")), model="x", tokenizer=Letters()).exact


def test_a_server_that_does_not_answer_is_as_good_as_none() -> None:
    """The estimate takes its place."""
    unreachable = LlamaServer("http://127.0.0.1:9")

    assert not tokens.count(WORDS, model="local:x", tokenizer=unreachable).exact
    assert not tokens.count(asked(Text(WORDS)), model="local:x", tokenizer=unreachable).exact


def test_a_local_model_counts_as_it_is_charged() -> None:
    """Text and requests of text are exact once its server runs; the real one is asked."""
    pytest.importorskip("xllamacpp")
    assert tokens.at_hand("local:no-such-model") is None
    try:
        address = serve("smollm2")
    except PerdureError as error:
        pytest.skip(f"the weights are not there: {error}")
    context = Context(system="Be brief.", messages=[Message("user", (Text(WORDS),))])

    counted = tokens.count(context, model="local:smollm2")
    body = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": WORDS}]}
    sent = Request(
        f"{address}/v1/chat/completions",
        json.dumps(body | {"max_tokens": 1}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urlopen(sent, timeout=60) as answer:
        usage = json.load(answer)["usage"]

    assert (counted.count, counted.exact, counted.how) == (usage["prompt_tokens"], True, "llama.cpp")
    assert tokens.count(WORDS, model="local:smollm2").exact
    assert not tokens.count(asked(tools=[ToolSpec(name="t")]), model="local:smollm2").exact
