#!/usr/bin/env python3
"""Real clients, headless, against the proxy with simulated backends behind it.

Each client does one small task, "create greeting.txt", with its own tools, although the backend writes its calls as text; and
the same while the first backend dies under its request. What counts is the file, the client's exit code, and that the proxy
knew who called.

    tests/clients/run.py --binary target/release/switchback            every client that is installed
    tests/clients/run.py --binary … --install sdk-python sdk-js        installs these before (npm and PyPI), then runs them

Needs Python 3.11, git and, for OpenHands, Python 3.12. Node comes from PyPI. Clients run in a network of their own that has
only loopback, where the system lets everybody make one (`unshare`); they find a home folder of their own in any case.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from clients import CLIENTS, CONTENT, MODEL, PROMPT, Place

HERE = Path(__file__).resolve().parent
ALONE = "SWITCHBACK_CLIENTS_ALONE"


def main():
    options = arguments()
    wanted = options.clients or [name for name, client in CLIENTS.items() if client.is_there(options.root)]
    if options.install:
        for name in wanted:
            CLIENTS[name].install(options.root)
    if not wanted:
        sys.exit("no client is installed; --install NAME… installs some of: " + ", ".join(CLIENTS))
    if not options.online:
        alone()
    rows = [row for name in wanted for row in run_client(name, options)]
    if options.table:
        print_table(rows)
    failed = [row for row in rows if not row["good"]]
    print(f"{len(rows) - len(failed)} of {len(rows)} good")
    sys.exit(1 if failed else 0)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help="absent: all that are installed")
    parser.add_argument("--binary", required=True, type=Path, help="the switchback program")
    parser.add_argument("--root", type=Path, default=HERE.parent.parent / "target" / "clients", help="where clients are installed")
    parser.add_argument("--install", action="store_true", help="install the named clients first, over the network")
    parser.add_argument("--online", action="store_true", help="leave clients the network")
    parser.add_argument("--table", action="store_true", help="print the results as a Markdown table, too")
    options = parser.parse_args()
    options.binary, options.root = options.binary.resolve(), options.root.resolve()
    for name in options.clients:
        if name not in CLIENTS:
            parser.error(f"there is no client {name}; there are: {', '.join(CLIENTS)}")
    if options.install and not options.clients:
        parser.error("--install needs names")
    return options


def alone():
    """Starts again in a network that has only loopback, if that is possible."""
    if os.environ.get(ALONE):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        return
    can = shutil.which("unshare") and shutil.which("ip")
    if not can or subprocess.run(["unshare", "-rn", "true"], capture_output=True).returncode != 0:
        print("no network of their own for clients here (unshare): they run in this one")
        return
    again = [argument for argument in sys.argv if argument != "--install"]
    os.environ[ALONE] = "1"
    os.execvp("unshare", ["unshare", "-rn", sys.executable, *again])


WINDOWS = {"first": 131_072, "second": 262_144}
SCENARIOS = {
    # The model writes its calls as text; what the proxy sends to whom is in its log.
    "calls as text": ["qwen-xml"],
    "the first backend dies": [None, "hermes"],
}


def run_client(name, options):
    client = CLIENTS[name]
    for scenario, backends in SCENARIOS.items():
        folder = options.root / "runs" / name / scenario.replace(" ", "-")
        shutil.rmtree(folder, ignore_errors=True)
        place = Place(root=options.root, home=folder / "home", work=folder / "work", url="")
        for path in (place.home, place.work):
            path.mkdir(parents=True)
        # A project of its own: agents look for the root of theirs in the folders above.
        subprocess.run(["git", "init", "--quiet"], cwd=place.work, check=True)
        with Proxy(options.binary, folder, [script(client, place, form) for form in backends]) as proxy:
            place.url = proxy.url
            began = time.monotonic()
            code, output = execute(client, place, folder)
            took = time.monotonic() - began
            faults = judge(client, place, code, proxy.requests(), len(backends))
        row = {"client": name, "version": client.version, "scenario": scenario, "took": took, "good": not faults}
        print(f"{'good' if not faults else 'BAD '}  {name:14} {scenario:24} {took:6.1f} s  {'; '.join(faults)}")
        if faults:
            print("      " + "\n      ".join(output.splitlines()[-15:]))
            print(f"      more in {folder}")
        yield row


def execute(client, place, folder):
    """The client's exit code and output; it has its own process group, so that nothing of it stays."""
    command, more = client.command(place)
    keep = {name: os.environ[name] for name in ("PATH", "LANG", "TERM", "TMPDIR") if name in os.environ}
    env = keep | place.env() | more
    path = folder / "output.txt"
    with path.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=place.work, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = process.wait(client.seconds)
        except subprocess.TimeoutExpired:
            code = f"nothing within {client.seconds} s"
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    return code, path.read_text(errors="replace")


def judge(client, place, code, requests, backends):
    """What is wrong, in sentences."""
    faults = []
    file = place.work / "greeting.txt"
    if not file.is_file():
        faults.append("greeting.txt is not there")
    elif file.read_text().strip() != CONTENT:
        faults.append(f"greeting.txt says {file.read_text()[:60]!r}")
    if code != 0:
        faults.append(f"exit code {code}")
    chats = [request for request in requests if "backend" in request]
    known = {request.get("client") for request in chats}
    if client.profile not in known:
        faults.append(f"recognised as {', '.join(sorted(map(str, known))) or 'nobody'}, not as {client.profile}")
    bad = [request for request in chats if request.get("outcome") not in ("answered", "client-left")]
    if bad:
        faults.append(f"{len(bad)} requests ended as {bad[0].get('outcome')} ({bad[0].get('code')})")
    if backends > 1 and not any("first" in request.get("faults", "") for request in chats):
        faults.append("the first backend did not die of a request")
    return faults


def script(client, place, form):
    """What a backend does: it dies of its first turn, or calls the client's tool as text and then says that it is done."""
    said = client.says(place)
    if form is None:
        steps = ["dead"]
    elif said is not None:
        steps = [f"say {said}"]
    else:
        tool, call = client.call(place)
        steps = [f"write {form} {tool} {json.dumps(call)}"]
    return {"steps": steps, "then": "say Done.", "aside": None if said is not None else "say A greeting"}


class Proxy:
    """The proxy with its backends, for as long as the block lasts."""

    def __init__(self, binary, folder, scripts):
        self.binary, self.folder, self.scripts, self.children = binary, folder, scripts, []

    def __enter__(self):
        ports = [free_port() for _ in range(len(self.scripts) + 1)]
        fleet, backends = "", ""
        for name, port, script in zip(WINDOWS, ports, self.scripts):
            told = ", ".join(f"{key} = {json.dumps(value)}" for key, value in script.items() if value is not None)
            fleet += f'[[backend]]\npreset = "vllm/dual"\nname = "{name}"\nlisten = "127.0.0.1:{port}"\nmodel = "{MODEL}"\n'
            # A prompt that is held guilty of a death goes to a larger backend, not to an equal one.
            fleet += f"window = {WINDOWS[name]}\nfaults = {{ crashes_per_1k = 0.0 }}\nscript = {{ {told} }}\n"
            backends += f'[[backend]]\nname = "{name}"\nurl = "http://127.0.0.1:{port}"\n'
        rig, config = self.folder / "rig.toml", self.folder / "switchback.toml"
        rig.write_text(fleet)
        # No cliff is remembered from one run to the next.
        config.write_text(f'[server]\nlisten = "127.0.0.1:{ports[-1]}"\n{backends}[[model]]\nname = "{MODEL}"\n')
        self.start("rig", ["rig", "--file", rig, "--speed", "50"], ports[:-1])
        self.start("proxy", ["serve", "--config", config], ports[-1:])
        self.url = f"http://127.0.0.1:{ports[-1]}"
        return self

    def start(self, name, command, ports):
        env = os.environ | {"SWITCHBACK_LOG_FORMAT": "json", "XDG_STATE_HOME": str(self.folder / "state")}
        log = (self.folder / f"{name}.log").open("wb")
        child = subprocess.Popen([self.binary, *command], env=env, stdout=log, stderr=log, start_new_session=True)
        self.children.append(child)
        for port in ports:
            while True:
                if child.poll() is not None:
                    sys.exit(f"{name} ended at once:\n" + (self.folder / f"{name}.log").read_text())
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)

    def requests(self):
        """The log lines of the requests that have ended."""
        self.stop()
        lines = (self.folder / "proxy.log").read_text().splitlines()
        read = (json.loads(line) for line in lines if line.startswith("{"))
        return [line for line in read if line.get("message") == "request"]

    def stop(self):
        for child in reversed(self.children):
            child.terminate()
        for child in self.children:
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self.children = []

    def __exit__(self, *_):
        self.stop()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def print_table(rows):
    day = time.strftime("%Y-%m-%d")
    print("\n| client | version | " + " | ".join(SCENARIOS) + " | last run |\n|---|---|" + "---|" * (len(SCENARIOS) + 1))
    for name in dict.fromkeys(row["client"] for row in rows):
        own = {row["scenario"]: row for row in rows if row["client"] == name}
        cells = [f"{'good' if own[s]['good'] else 'bad'}, {own[s]['took']:.0f} s" for s in SCENARIOS]
        print(f"| {name} | {CLIENTS[name].version} | " + " | ".join(cells) + f" | {day} |")
    print()


if __name__ == "__main__":
    main()
