"""The official SDKs as judges of requests: what each one's own request types refuse.

What HAZARDS lists as relaxed (fields that the services take and the types lack) is not counted against
a request.  `azure-inference-chat` is judged by the types of Chat, less the fields that it lacks; `ollama-chat` by
the request that Ollama documents, written out in `native.py`.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import pytest

from tests.recorded.native import NativeRequest
from tests.recorded.typed import Fault, faults

__all__ = ["oracle"]

Oracle = Callable[[Mapping[str, Any]], list[Fault]]

RELAXED = {
    "anthropic-messages": r"temperature|top_p|top_k|output_format|.*\.abort_reason",
    "openai-chat": r"messages\[\d+\]\.(name|annotations)",
    "openai-responses": (
        r"(input\[\d+\]\.)?tools\[\d+\]\.strict|input\[\d+\]\.(id|status|outputs|result)"
        r"|input\[\d+\]\.(content|output)\[\d+\]\.detail|input\[\d+\]\.action\.sources"
    ),
    "gemini-generate": (
        r"generationConfig\.imageConfig.*|modelArmorConfig.*"
        r"|.*(additionalProperties|additional_properties|\$ref|\$defs|title|default)"
    ),
}
# What the types want and the service does not; the path of an object that lacks it is the object's own.
LACKING = re.compile(r"has no (strict|detail|id|status|outputs|result|sources)\b")

# What Azure's model inference takes of a request of Chat.
OF_AZURE = {
    *("messages", "model", "stream", "stream_options", "modalities"),
    *("temperature", "top_p", "frequency_penalty", "presence_penalty", "max_tokens", "stop", "seed"),
    *("response_format", "tools", "tool_choice", "reasoning_effort"),
}


def oracle(api: str) -> Oracle:
    """The judge of a format; skips where its SDK is not installed."""
    module = {
        "openai-chat": "openai",
        "openai-responses": "openai",
        "azure-inference-chat": "openai",
        "anthropic-messages": "anthropic",
        "gemini-generate": "google.genai",
        "bedrock-converse": "botocore",
        "mistral-chat": "mistralai.client",
        "ollama-chat": "typing_extensions",
        "gemini-interactions": "google.genai",
    }[api]
    pytest.importorskip(module, reason=f"{module}, whose types judge requests of {api}, is not installed")
    judge = _ORACLES[api]
    return lambda body: [each for each in judge(body) if not _is_relaxed(api, each)]


def _is_relaxed(api: str, fault: Fault) -> bool:
    pattern = RELAXED.get(api)
    where = fault[0].removeprefix(".")
    if pattern is not None and re.fullmatch(pattern, where):
        return True
    return api == "openai-responses" and LACKING.search(fault[1]) is not None


def _chat(body: Mapping[str, Any]) -> list[Fault]:
    from openai.types.chat.completion_create_params import CompletionCreateParamsBase as Params

    return faults({name: value for name, value in body.items() if name != "stream"}, Params)


def _azure(body: Mapping[str, Any]) -> list[Fault]:
    foreign = [(name, "Azure's model inference has no such field") for name in body.keys() - OF_AZURE]
    return [*foreign, *_chat({"model": "any"} | {name: body[name] for name in body.keys() & OF_AZURE})]


def _responses(body: Mapping[str, Any]) -> list[Fault]:
    from openai.types.responses.response_create_params import ResponseCreateParamsBase as Params

    return faults({name: value for name, value in body.items() if name != "stream"}, Params)


def _anthropic(body: Mapping[str, Any]) -> list[Fault]:
    from anthropic.types.beta.message_create_params import MessageCreateParamsBase as Params

    return faults({name: value for name, value in body.items() if name != "stream"}, Params)


def _mistral(body: Mapping[str, Any]) -> list[Fault]:
    from mistralai.client.models import ChatCompletionRequestTypedDict

    return faults(_in_python(dict(body)), ChatCompletionRequestTypedDict)


def _in_python(body: dict[str, Any]) -> dict[str, Any]:
    """The request with the one name that the SDK spells otherwise than the wire."""
    output: Any = body.get("response_format")
    wanted = output.get("json_schema") if isinstance(output, dict) else None
    if not isinstance(wanted, dict):
        return body
    spelled = {"schema_definition" if name == "schema" else name: value for name, value in wanted.items()}
    return body | {"response_format": output | {"json_schema": spelled}}


@cache
def _gemini_parts() -> dict[str, Any]:
    from google.genai import types
    from pydantic import TypeAdapter

    return {
        "contents": TypeAdapter(list[types.Content]),
        "systemInstruction": TypeAdapter(types.Content),
        "tools": TypeAdapter(list[types.Tool]),
        "toolConfig": TypeAdapter(types.ToolConfig),
        "generationConfig": TypeAdapter(types.GenerationConfig),
        "safetySettings": TypeAdapter(list[types.SafetySetting]),
        "cachedContent": TypeAdapter(str),
        "labels": TypeAdapter(dict[str, str]),
    }


def _gemini(body: Mapping[str, Any]) -> list[Fault]:
    from pydantic import ValidationError

    found: list[Fault] = []
    for name, value in body.items():
        judge = _gemini_parts().get(name)
        if judge is None:
            found.append((name, "a request has no such field"))
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # the SDK only warns of words that it does not know
                judge.validate_json(json.dumps(value, ensure_ascii=True))
        except (
            AttributeError,
            UserWarning,
        ) as error:  # the SDK expects names where the service takes numbers too
            found.append((name, str(error)))
        except ValidationError as error:
            found += [(_path(name, each["loc"]), each["msg"]) for each in error.errors(include_url=False)]
    return found


def _path(name: str, steps: tuple[int | str, ...]) -> str:
    return name + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


def _interactions(body: Mapping[str, Any]) -> list[Fault]:
    from google.genai._gaos.types import interactions  # pyright: ignore[reportMissingTypeStubs]

    # The types list the models and agents that there were when the SDK was made.
    if "agent" in body:
        known = {"agent": "deep-research-pro-preview-12-2025"}
        return faults({**body, **known}, interactions.CreateAgentInteractionParam)
    known = {"model": "gemini-2.5-flash"} if "model" in body else {}
    return faults({**body, **known}, interactions.CreateModelInteractionParam)


@cache
def _converse() -> Any:
    from botocore.loaders import Loader  # pyright: ignore[reportMissingTypeStubs]
    from botocore.model import ServiceModel  # pyright: ignore[reportMissingTypeStubs]

    model = ServiceModel(Loader().load_service_model("bedrock-runtime", "service-2"))
    return model.operation_model("Converse").input_shape


def _bedrock(body: Mapping[str, Any]) -> list[Fault]:
    from botocore.validate import ParamValidator  # pyright: ignore[reportMissingTypeStubs]

    report = ParamValidator().validate({"modelId": "any"} | dict(body), _converse())
    return [("", line) for line in report.generate_report().splitlines()] if report.has_errors() else []


_ORACLES: dict[str, Oracle] = {
    "openai-chat": _chat,
    "openai-responses": _responses,
    "anthropic-messages": _anthropic,
    "gemini-generate": _gemini,
    "bedrock-converse": _bedrock,
    "mistral-chat": _mistral,
    "azure-inference-chat": _azure,
    "ollama-chat": lambda body: faults(dict(body), NativeRequest),
    "gemini-interactions": _interactions,
}
