"""A real llama.cpp server on loopback, for the suite against real backends.

Prints its address when the model is loaded, and serves until it is told to stop: SIGTERM stops it as it stops
llama.cpp's own program, and the end of standard input, which is the end of whoever started it, at once. So no server
outlives its test, however that ends. Must never listen beyond loopback.
"""

import argparse
import os
import signal
import sys
import threading

import xllamacpp


def options():
    parser = argparse.ArgumentParser(description="Serves a GGUF model on 127.0.0.1.")
    parser.add_argument("model", help="path of the .gguf file")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--alias", required=True, help="name of the model for clients")
    parser.add_argument("--context", type=int, required=True, help="tokens, shared by all slots")
    parser.add_argument("--slots", type=int, required=True, help="requests at a time")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=64, help="tokens between two looks at the queue")
    parser.add_argument("--embeddings", action="store_true")
    parser.add_argument("--template", help="file with a chat template; absent: the model's own")
    return parser.parse_args()


def parameters(wanted):
    params = xllamacpp.CommonParams()
    params.model.path = wanted.model
    params.model_alias = {wanted.alias}
    params.hostnames = ["127.0.0.1"]
    params.port = wanted.port
    params.n_ctx = wanted.context
    params.n_parallel = wanted.slots
    params.n_batch = params.n_ubatch = wanted.batch
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = wanted.threads
    params.n_gpu_layers = 0
    params.warmup = False
    params.use_jinja = True
    if wanted.template:
        with open(wanted.template, encoding="utf-8") as file:
            params.chat_template = file.read()
    if wanted.embeddings:
        params.embedding = True
        params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    params.endpoint_metrics = params.endpoint_props = params.endpoint_slots = True
    return params


def end_with_parent():
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(0)


def main():
    wanted = options()
    threading.Thread(target=end_with_parent, daemon=True).start()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    server = xllamacpp.Server(parameters(wanted))
    print(server.listening_address, flush=True)
    stop.wait()
    # Closes the port and the queue, and waits for what is being answered, which is never finished. Python stands still
    # meanwhile, so the end of standard input would not be seen: the alarm ends the process.
    signal.alarm(60)
    del server


main()
