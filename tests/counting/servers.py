"""What a running engine says of the requests: vLLM by /tokenize, llama.cpp by /v1/chat/completions/input_tokens.

Prints {"model", "id", "tokens"} or {"model", "id", "refused"} a line. vLLM's /tokenize knows neither reasoning_effort nor tool_choice,
so requests with the former are left out there.

    servers.py vllm|llama-cpp ADDRESS MODEL_FOLDER_NAME REQUESTS
"""

import json
import sys
import urllib.error
import urllib.request

PICKED = ("messages", "tools", "chat_template_kwargs", "add_generation_prompt", "continue_final_message")


def ask(address, path, body):
    data = json.dumps(body).encode()
    request = urllib.request.Request(f"http://{address}{path}", data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as error:
        return {"refused": error.read().decode(errors="replace")[:300]}


def main():
    engine, address, model, requests = sys.argv[1:]
    for line in open(requests):
        line = json.loads(line)
        body = line["request"]
        if engine == "vllm":
            if "reasoning_effort" in body:
                continue
            body = {name: body[name] for name in PICKED if body.get(name) not in (None, [])}
            # Its chat endpoint reads the old name of reasoning, /tokenize does not.
            for message in body["messages"]:
                if "reasoning_content" in message:
                    message["reasoning"] = message.pop("reasoning_content")
            answer = ask(address, "/tokenize", body)
            tokens = answer.get("count")
        else:
            answer = ask(address, "/v1/chat/completions/input_tokens", body)
            tokens = answer.get("input_tokens")
        answer = {"tokens": tokens} if tokens is not None else {"refused": answer.get("refused")}
        print(json.dumps({"model": model, "id": line["id"], **answer}), flush=True)


main()
