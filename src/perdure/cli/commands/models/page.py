"""The reference page of models, made from the catalog and from the measures of tokens.

    python -m perdure.cli.commands.models.page > docs/reference/models.md

A test compares the page with what is made here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from inspect import cleandoc

from perdure.cli.commands.models.shapes import ModelShape, abilities, dollars, tokens
from perdure.providers.catalog import Catalog, Facts, shipped
from perdure.providers.token_measures import FAMILIES, Family, Off, family

__all__ = ["page"]

_INTRODUCTION = """
# Models

This page is made from the catalog by `python -m perdure.cli.commands.models.page`.
`perdure models ls` and `perdure models show` print the same, with your own file laid over it.

The data is of {date}.
A `?` is shown where only one source gives a limit or a price; `perdure models show` names every field of that kind.
Prices are US dollars for a million tokens, at list price for short prompts; batches, long prompts and other tiers cost otherwise.

| source | what it is |
|---|---|
{sources}

## Names

A backend is written `provider:model`.
A model's name that only one provider has works without it, and where several have it the one that made the model is meant: `gpt-5.6` is `openai:gpt-5.6`.
A region, a date, a variant or a size in a name is seen through: `us.amazon.nova-pro-v1:0` has the facts of `amazon.nova-pro-v1:0`.
A model that another serves under its maker's name has its maker's facts, without prices.
A family's name on the command line (`--to claude-sonnet`) is the newest of its models that is not about to end, and the command says which.
A model that is in neither gets the defaults of its provider and a note that says so; it is never refused for that.

## Your own file

`$PERDURE_MODELS`, else `~/.config/perdure/models.json`, is laid over the catalog, field by field.
It has the form of the shipped data; every field may be left out, and a new model begins with its provider's defaults.

```json
{{
  "models": {{
    "openai": {{
      "gpt-5.6": {{"prices": {{"input": 1.0, "output": 8.0}}}},
      "ft:gpt-5.6:acme": {{"context_window": 1050000, "output_limit": 128000, "tools": true}}
    }}
  }},
  "defaults": {{"vllm": {{"context_window": 65536, "tools": true}}}}
}}
```

| field | meaning |
|---|---|
| `context_window` | tokens, input and output together |
| `input_limit` | tokens of a request, where that is less |
| `output_limit` | tokens of an answer |
| `input`, `output` | lists of `text`, `image`, `file`, `audio`, `video` |
| `tools`, `strict`, `reasoning`, `computer_use` | true or false; `strict` is keeping to a JSON schema |
| `prices` | `input` and `output`, and where there is a cache `cache_read` and `cache_write` |
| `ends` | the day on which its vendor stops serving it, as `2026-11-30`; a run on such a model warns once |
| `maker`, `also`, `released`, `deprecated`, `note`, `sources`, `unconfirmed` | whose it is, other names, and words for people |

A file that cannot be read, or has a field that is none of these, is an error; nothing is guessed.

## Counting tokens

`perdure.providers.tokens.count(context, model="openai:gpt-5.6")` gives a count, a margin, whether it is exact, and how it was got.
A text is exact where the model's tokenizer is available: tiktoken for OpenAI's models, if it is installed and has its vocabulary on disk (nothing is fetched to count), and llama.cpp for a local model whose server runs in this process, which counts whole requests of text exactly, too.
Everything else is an estimate: words, digits, marks and lines are weighed, and what the servers of a family add for messages, calls, tools and schemas is added.
The margin is some tokens and a share of the count, fitted so that it covers 95 of 100 requests of text in recorded traffic, mostly English; a test measures it again.
Pictures count 1,000 tokens and files 3,000, with a margin of the same size; sealed reasoning only widens the margin; shown thinking is not counted, since it is not sent back as words.

| family | without tools | with tools or a schema |
|---|---|---|
{families}
"""


def page() -> str:
    """Return the whole page."""
    catalog = shipped()
    introduction = cleandoc(_INTRODUCTION).format(
        date=catalog.date,
        sources=_rows((name, what) for name, what in catalog.sources.items()),
        families=_rows(map(_family, (*FAMILIES, family("")))),
    )
    return "\n\n".join([introduction, "## Models by provider", *_providers(catalog)]) + "\n"


def _providers(catalog: Catalog) -> Iterator[str]:
    for provider in catalog.models:
        also = sorted(name for name, home in catalog.aliases.items() if home == provider)
        names = f"The same models are served as {', '.join(f'`{name}`' for name in also)}.\n" if also else ""
        head = "| model | window | output | takes | can | in | out | |\n|---|---|---|---|---|---|---|---|"
        rows = _rows(_model(ModelShape.of(card)) for card in catalog.cards(provider))
        rest = f"Others: {_defaults(catalog.defaults[provider])}." if provider in catalog.defaults else ""
        yield f"### {provider}\n\n{names}{rest}\n\n{head}\n{rows}"


def _model(model: ModelShape) -> tuple[str, ...]:
    doubt = {"context_window", "output_limit", "prices"} & set(model.unconfirmed)
    prices = model.prices
    return (
        f"`{model.name}`",
        tokens(model.context_window),
        tokens(model.output_limit),
        " ".join(model.input),
        abilities(model),
        dollars(prices.input) if prices else "",
        dollars(prices.output) if prices else "",
        "; ".join(filter(None, [_end(model), "?" if doubt else "", model.note])),
    )


def _end(model: ModelShape) -> str:
    return f"until {model.ends}" if model.ends else "deprecated" if model.deprecated else ""


def _defaults(facts: Facts) -> str:
    limit = f", answers of {tokens(facts.output_limit)}" if facts.output_limit else ""
    return f"a window of {tokens(facts.context_window)}{limit}"


def _family(known: Family) -> tuple[str, ...]:
    return known.name, _off(known.plain), _off(known.tooled)


def _off(off: Off) -> str:
    return f"± {off.tokens} tokens and {off.share:.0%}"


def _rows(rows: Iterable[Iterable[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


if __name__ == "__main__":
    print(page(), end="")
