"""llama.cpp's own rendering of the requests with each template: a server of its own per template, /apply-template, no tokens.

Prints {"model", "id", "text"} or {"model", "id", "refused"} a line. Needs the wheel xllamacpp, and any small GGUF file with ChatML's
marks as begin and end tokens (SmolLM2's): what counts is the text.

    apply_templates.py GGUF REQUESTS MODELS_FOLDER [EVERY]      each template-* folder there; one request of EVERY, 9 if not said
"""

import json
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path


def serve(model, template):
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.chat_template = Path(template).read_text()
    params.use_jinja = True
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = 512
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.n_gpu_layers = 0
    params.warmup = False
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()
    del server


def ask(address, body):
    data = json.dumps(body).encode()
    request = urllib.request.Request(f"{address}/apply-template", data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return {"text": json.load(reply)["prompt"]}
    except urllib.error.HTTPError as error:
        return {"refused": error.read().decode(errors="replace")[:300]}


def main():
    if sys.argv[1] == "--serve":
        return serve(*sys.argv[2:])
    model, requests, models, *every = sys.argv[1:]
    lines = [json.loads(line) for line in open(requests)][:: int(every[0]) if every else 9]
    for folder in sorted(Path(models).glob("template-*")):
        template = folder / "chat_template.jinja"
        command = [sys.executable, __file__, "--serve", model, str(template)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
            address = server.stdout.readline().strip()
            if not address:
                print(f"{folder.name}: llama.cpp does not start with it", file=sys.stderr, flush=True)
                continue
            address = address if address.startswith("http") else f"http://{address}"
            for line in lines:
                print(json.dumps({"model": folder.name, "id": line["id"], **ask(address, line["request"])}))
            server.kill()
        print(folder.name, file=sys.stderr, flush=True)


main()
