"""What a student's code tries to change outside of itself, noted while it runs: a remark for the
teacher, no barrier.

What keeps it from doing so is in `confine`; this also notices where that is not permitted, or
nothing came of it.
"""

import os
import sys
from contextlib import suppress
from typing import Any

# Events of Python, see its table of audit events, and what they mean. An `open` counts if it is for
# writing.
CHANGES = {
    "open": "write",
    "os.truncate": "write",
    "os.remove": "delete",
    "os.rmdir": "delete",
    "shutil.rmtree": "delete",
    "os.rename": "rename",
    "os.mkdir": "create",
    "os.link": "link",
    "os.symlink": "link",
    "os.chmod": "change",
    "os.chown": "change",
    "os.utime": "change",
}
# What starts a program, which may change anything, or leaves the machine.
REACHES_OUT = {
    "os.system": "run",
    "subprocess.Popen": "run",
    "os.exec": "run",
    "os.posix_spawn": "run",
    "os.spawn": "run",
    "socket.connect": "connect to",
}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
MOST = 3  # attempts that are noted; a loop would add thousands


class Watch:
    """Notes the attempts of code that was compiled from files in a folder.

    It cannot be removed from its process.
    """

    def __init__(self, folder: str):
        self.folder = os.path.join(folder, "")
        self.attempts: list[str] = []
        sys.addaudithook(self._hook)

    def take(self) -> list[str]:
        """What was noted since the last time."""
        taken = self.attempts
        self.attempts = []
        return taken

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        what = CHANGES.get(event) or REACHES_OUT.get(event)
        if what is None or len(self.attempts) >= MOST:
            return
        with suppress(Exception):  # an error here would become one of the code that is watched
            if event == "open" and not arguments[2] & WRITING:
                return
            thing = (
                arguments[1] if event in ("socket.connect", "subprocess.Popen") else arguments[0]
            )
            self._note(what, thing, is_change=event in CHANGES)

    def _note(self, what: str, thing: Any, is_change: bool) -> None:
        is_from_student, is_direct = self._source()
        name = os.fsdecode(thing) if isinstance(thing, str | bytes | os.PathLike) else str(thing)
        # Packages write caches into the temporary folder, and start programs that tell them about
        # the machine.
        is_elsewhere = is_change and not os.path.abspath(name).startswith(self.folder)
        if is_from_student and (is_direct or is_elsewhere) and name != os.devnull:
            note = f"{what} `{name[:100]}`"
            if note not in self.attempts:
                self.attempts.append(note)

    def _source(self) -> tuple[bool, bool]:
        """Whether the running call comes from the watched code, and whether no installed package is
        between them.
        """
        is_direct = True
        frame = sys._getframe(1)
        while frame is not None:
            file = frame.f_code.co_filename
            if file.startswith(self.folder):
                return True, is_direct
            is_direct = is_direct and "site-packages" not in file
            frame = frame.f_back
        return False, False
