"""A small agent on OpenAI's SDK for Python, as its documentation shows one: a tool loop, streamed, then once more plain."""

import json
import sys
from pathlib import Path

from openai import OpenAI

url, model, prompt = sys.argv[1:]
client = OpenAI(base_url=f"{url}/v1", api_key="none")
parameters = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
    "required": ["path", "content"],
}
tools = [{"type": "function", "function": {"name": "write_file", "description": "Writes a file.", "parameters": parameters}}]


def streamed(messages):
    with client.chat.completions.stream(model=model, messages=messages, tools=tools) as stream:
        for _ in stream:
            pass
        return stream.get_final_completion().choices[0]


def plain(messages):
    return client.chat.completions.create(model=model, messages=messages, tools=tools).choices[0]


def answer(messages, ask):
    while True:
        choice = ask(messages)
        messages.append(choice.message.model_dump(exclude_none=True, exclude={"parsed", "refusal", "annotations"}))
        if choice.finish_reason != "tool_calls":
            return choice.message.content
        for call in choice.message.tool_calls:
            arguments = json.loads(call.function.arguments)
            Path(arguments["path"]).write_text(arguments["content"])
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "written"})


messages = [{"role": "user", "content": prompt}]
print(answer(messages, streamed))
messages.append({"role": "user", "content": "Is it done?"})
print(answer(messages, plain))
assert any(message["role"] == "tool" for message in messages), "no call came"
