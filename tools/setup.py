"""Create or repair .venv and install the pinned dependencies into it: python tools/setup.py [lab |
lab,course,test]

Only the standard library, and nothing newer than Python 3.6: an old Python must be able to say that
it is too old.
"""

import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
PIP = VENV_PYTHON, "-I", "-m", "pip", "--disable-pip-version-check"
STAMP = VENV / "setup.stamp"
LOG = VENV / "setup.log"
# the pins were tested on the first, so it is looked for first
SUPPORTED = [(3, 11), (3, 12), (3, 13), (3, 10)]
ALL = "lab,course,test"
SATISFIED_BY = {"lab": ["lab", ALL], ALL: [ALL]}
FREE_GIB = 3  # .venv with a CPU torch, and pip's downloads

DISK_FULL = "No space left|Errno 28|Disk quota|WinError 112"
READ_ONLY = "Permission denied|Read-only file system|Errno 13|Errno 30|WinError 5\\b"
NO_NETWORK = (
    "connection broken|Could not fetch URL|ConnectionError|ConnectionResetError|Connection "
    "refused|ConnectTimeout|ReadTimeout|timed out|ProtocolError|IncompleteRead|ProxyError|SSLError"
)
AGAIN = "then run the same command again, it continues where it stopped"


def stop(reason):
    sys.exit(f"\nSet-up stopped: {reason}.")


def explain(what, output):
    """Stop with the cause that the output of a failed step shows, and how to fix it."""
    log = f" (pip's log: {LOG.relative_to(ROOT)})" if os.path.exists(str(LOG)) else ""
    if re.search(DISK_FULL, output):
        stop(
            f"the disk is full: {ROOT} and the temporary folder {tempfile.gettempdir()} need about "
            f"{FREE_GIB} GiB (10 with a torch for NVIDIA GPUs, README.md says how to get the small "
            f"one); free some, {AGAIN}{log}"
        )
    if re.search(READ_ONLY, output):
        stop(
            f"{ROOT} cannot be written by you: copy the course to a folder of your own, "
            f"{AGAIN}{log}"
        )
    if "SSL module is not available" in output:
        stop(
            "this Python was built without the module ssl, so pip cannot download: delete .venv, "
            "and name another Python, for example `make lab PYTHON=python3.12`"
        )
    if re.search(NO_NETWORK, output):
        stop(
            "no network: pip cannot reach its package index; check the connection, or behind a "
            "firewall set HTTPS_PROXY to your proxy or PIP_INDEX_URL to an index that is let "
            f"through, {AGAIN}{log}"
        )
    if re.search("No matching distribution found for torch|Cannot install torch because", output):
        stop(
            f"the torch of constraints.txt does not exist for {platform.system()} "
            f"{platform.machine()}: use a 64-bit Python on Linux, on Windows or on a Mac with "
            f"Apple silicon, {AGAIN}{log}"
        )
    lines = output.strip().splitlines() or ["no message"]
    errors = [line for line in lines if line.lower().startswith("error")] or lines
    stop(f"{what} failed with '{errors[-1].rstrip('.')}'; repair that, {AGAIN}{log}")


def run(what, *command):
    """Everything goes to the log; people see what takes the time: large downloads, an index that
    does not answer.
    """
    command = [str(part) for part in command]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace"
    )
    output = ""
    with process, LOG.open("a", encoding="utf-8") as log:
        for line in process.stdout:
            log.write(line)
            output += line
            if " MB)" in line or "Retrying (" in line:
                print(line.rstrip(), flush=True)
    if process.returncode:
        explain(what, output)


def answer(python, *arguments):
    """What a Python prints, or None where it does not run."""
    command = [str(python), "-I", *arguments]
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, errors="replace"
        )
    except OSError:
        return None
    return None if done.returncode else done.stdout


def version_of(python):
    numbers = answer(python, "-c", "import sys; print(*sys.version_info[:2])")
    return tuple(map(int, numbers.split())) if numbers else None


def find_python():
    here = sys.version_info[:2]
    if here in SUPPORTED:
        # not the Python of a .venv that is about to be deleted
        return getattr(sys, "_base_executable", sys.executable)
    for version in SUPPORTED:
        python = shutil.which("python{}.{}".format(*version))
        if python and version_of(python) == version:
            print(f"Python {here[0]}.{here[1]} is not supported, taking {python}.", flush=True)
            return python
    too = "old" if here < min(SUPPORTED) else "new"
    return stop(
        f"Python {here[0]}.{here[1]} is too {too} and no supported one (3.10, 3.11, 3.12 or 3.13) "
        "is on the PATH: install one and name it, for example `make lab PYTHON=python3.12`"
    )


def fingerprint(version):
    inputs = [str(ROOT).encode(), str(version).encode()]
    inputs += [(ROOT / name).read_bytes() for name in ("constraints.txt", "pyproject.toml")]
    return hashlib.sha256(b"\n".join(inputs)).hexdigest()


def is_ready(version, extras):
    accepted = [f"{fingerprint(version)} {have}" for have in SATISFIED_BY[extras]]
    return version is not None and STAMP.exists() and STAMP.read_text() in accepted


def fault_of_venv(version):
    """Why .venv cannot be used as it is, or None."""
    if not VENV.exists():
        return "there is none yet"
    if version not in SUPPORTED:
        return "its Python does not run or is not supported"
    activate = VENV_PYTHON.with_name("activate")
    text = activate.read_text(encoding="utf-8") if activate.exists() else ""
    if str(VENV) not in text and shlex.quote(str(VENV)) not in text:
        return "it was left half-made or comes from another folder"
    return None if answer(VENV_PYTHON, "-m", "pip", "--version") else "it has no working pip"


def build_venv():
    python = find_python()
    if VENV.exists():
        shutil.rmtree(str(VENV))
    VENV.mkdir()
    if not answer(python, "-c", "import ensurepip, venv; print('found')"):
        package = "python{}.{}-venv".format(*version_of(python))
        stop(
            f"{python} comes without the module venv: install it, on Debian and Ubuntu with `apt "
            f"install {package}`"
        )
    run("creating .venv", python, "-I", "-m", "venv", VENV)


def packages():
    """The *.dist-info folders of .venv."""
    return [
        *VENV.glob("lib/python*/site-packages/*.dist-info"),
        *VENV.glob("Lib/site-packages/*.dist-info"),
    ]


def ask_index():
    """Stop where no index answers: pip alone, with five retries for each package, is silent for
    minutes.
    """
    print(
        "Asking the package index for torch, which takes seconds, or a minute where nothing "
        "answers ...",
        flush=True,
    )
    command = [str(part) for part in (*PIP, "index", "versions", "torch")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    patience = {"PIP_RETRIES": "1"}
    asked = subprocess.run(command, errors="replace", env={**os.environ, **patience}, **pipes)
    if asked.returncode and re.search(NO_NETWORK, asked.stdout):
        explain("asking the package index", asked.stdout)


def install(what, *requirements):
    print(f"Installing {what} ...", flush=True)
    run(f"installing {what}", *PIP, "install", "-c", "constraints.txt", *requirements)


def set_up(extras):
    version = version_of(VENV_PYTHON)
    if (
        version in SUPPORTED
        and sys.version_info[:2] in SUPPORTED
        and sys.version_info[:2] != version
    ):
        print(
            ("Using the Python {}.{} of .venv; to change it, delete .venv.").format(*version),
            flush=True,
        )
    if is_ready(version, extras):
        return
    has_torch = any(package.name.startswith("torch-") for package in packages())
    if not has_torch and shutil.disk_usage(str(ROOT)).free < FREE_GIB * 2**30:
        explain("the set-up", "No space left")
    fault = fault_of_venv(version)
    if fault:
        print(f"Making .venv: {fault}.", flush=True)
        build_venv()
    if STAMP.exists():
        STAMP.unlink()
    for package in packages():
        # written last: an interruption cut this one short, pip would keep it
        if not (package / "RECORD").exists():
            shutil.rmtree(str(package))
    ask_index()
    install("torch, the largest part", "torch")
    install("the rest of the course", "-e", f".[{extras}]")
    switch_off = "-I", "-m", "jupyterlab.labextensions", "disable", "--level=sys_prefix"
    run("JupyterLab", VENV_PYTHON, *switch_off, "@jupyterlab/apputils-extension:announcements")
    STAMP.write_text(f"{fingerprint(version_of(VENV_PYTHON))} {extras}")


def main():
    extras = sys.argv[1] if len(sys.argv) > 1 else "lab"
    if extras not in SATISFIED_BY:
        stop(f"`{extras}` cannot be installed, `lab` and `{ALL}` can")
    os.environ["PIP_CACHE_DIR"] = str(ROOT / "work" / "cache" / "pip")
    # pip asks rustc for its version, this writes
    os.environ["RUSTUP_HOME"] = str(ROOT / "work" / "cache" / "rustup")
    try:
        os.chdir(str(ROOT))
        set_up(extras)
    except KeyboardInterrupt:
        stop(f"interrupted; {AGAIN[5:]}")
    except OSError as error:
        explain("the set-up", str(error))


if __name__ == "__main__":
    main()
