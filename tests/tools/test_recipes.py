"""The recipes for a class and for machines of others: the commands of their files, as far as they run here."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE, README, INSTRUCTORS = (
    (ROOT / name).read_text(encoding="utf-8") for name in ("Makefile", "README.md", "INSTRUCTORS.md")
)
posix = pytest.mark.skipif(os.name == "nt", reason="Binder, Codespaces and JupyterHub run on Linux")


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A copy of what a clone has, except what no recipe touches."""
    for part in (".binder", "tinylm_lib", "tinylm_classroom", "notebooks"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__", "solutions"))
    return tmp_path


@posix
@pytest.mark.slow
def test_what_binder_runs_after_the_installation_makes_the_copies(checkout):
    python = checkout / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    path = {"PATH": f"{python.parent}:{os.environ['PATH']}", "PYTHONPATH": str(checkout), "TINYLM_WORK": ""}
    subprocess.run([checkout / ".binder" / "postBuild"], cwd=checkout, env=os.environ | path, check=True)
    names = {path.name for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert {path.name for path in (checkout / "work").iterdir()} == {*names, "more"}


def test_binder_installs_the_small_torch_the_pins_and_what_students_need():
    index, pins, *packages = (ROOT / ".binder" / "requirements.txt").read_text().splitlines()
    assert index.split()[0] == "--extra-index-url" and f"PIP_EXTRA_INDEX_URL={index.split()[1]}\n" in README
    option, constraints = (
        pins.split()
    )  # pip looks for it from the folder of the requirements, and for `.` where it runs
    assert option == "-c" and (ROOT / ".binder" / constraints).samefile(ROOT / "constraints.txt")
    assert packages == ["torch", "-e .[lab]"]
    assert (ROOT / ".binder" / "runtime.txt").read_text().startswith("python-3.11")


def test_codespaces_sets_up_with_a_target_of_the_makefile():
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    make, target = container["postCreateCommand"].split()
    assert make == "make" and re.search(rf"^{target}:", MAKEFILE, re.MULTILINE)
    (variable, index), = container["containerEnv"].items()  # fmt: skip
    assert f"export {variable}={index}\n" in README


HUB = """
c.JupyterHub.authenticator_class, c.JupyterHub.spawner_class = "dummy", "simple"
c.SimpleLocalProcessSpawner.home_dir_template = {home!r} + "/{{username}}"
c.Spawner.start_timeout = c.Spawner.http_timeout = 300
c.Authenticator.allow_all = True
c.JupyterHub.bind_url = "http://127.0.0.1:{ports[0]}"
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{ports[1]}"
c.JupyterHub.hub_port = {ports[2]}
c.JupyterHub.services = [{{"name": "test", "api_token": "a-token-of-this-test"}}]
c.JupyterHub.load_roles = [
    {{"name": "test", "services": ["test"], "scopes": ["admin:users", "admin:servers", "access:servers"]}}
]
"""


def ask(address: str, method: str = "GET") -> dict:
    headers = {"Authorization": "token a-token-of-this-test"}
    with urllib.request.urlopen(urllib.request.Request(address, method=method, headers=headers), timeout=60) as answer:
        return json.loads(answer.read() or "{}")


def wait_for(what, hub: subprocess.Popen, seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert hub.poll() is None and time.monotonic() < deadline
        time.sleep(0.2)


def is_up(address: str) -> bool:
    try:
        return bool(ask(address))
    except urllib.error.URLError:
        return False


@posix
@pytest.mark.slow
@pytest.mark.skipif(
    not (find_spec("jupyterhub") and shutil.which("configurable-http-proxy")), reason="no JupyterHub on this machine"
)
def test_jupyterhub_starts_the_course_for_each_user_in_a_folder_of_their_own(tmp_path):
    (line,) = re.findall(r"^c\.Spawner\.cmd = .+$", INSTRUCTORS, re.MULTILINE)
    line = re.sub(r'"[^"]+/\.venv/bin/python"', repr(sys.executable), line)
    with socket.socket() as a, socket.socket() as b, socket.socket() as c:
        for one in (a, b, c):
            one.bind(("127.0.0.1", 0))
        ports = [one.getsockname()[1] for one in (a, b, c)]
    (tmp_path / "jupyterhub_config.py").write_text(f"{line}\n{HUB.format(home=str(tmp_path), ports=ports)}")
    api, users = f"http://127.0.0.1:{ports[0]}/hub/api", ("ada", "bob")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TINYLM_WORK": ""}
    command = [sys.executable, "-m", "jupyterhub", "-f", "jupyterhub_config.py"]
    names = {path.name for path in (ROOT / "notebooks").glob("*.ipynb")}
    with subprocess.Popen(command, cwd=tmp_path, env=env) as hub:
        try:
            wait_for(lambda: is_up(api), hub)
            for user in users:
                ask(f"{api}/users/{user}", "POST")
                ask(f"{api}/users/{user}/server", "POST")
            for user in users:
                wait_for(lambda user=user: ask(f"{api}/users/{user}")["servers"][""]["ready"], hub)
                content = ask(f"http://127.0.0.1:{ports[0]}/user/{user}/api/contents")["content"]
                assert {entry["name"] for entry in content} == names
                assert {path.name for path in (tmp_path / user / "tinylm").iterdir()} == names | {"cache"}
        finally:
            hub.terminate()
            hub.wait()
