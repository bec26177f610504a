"""What the course adds to the command line: tinylm doctor | lab | grade | page | site | slides.

`tinylm_lib` finds `add_commands` by the entry point in pyproject.toml. A program is imported when
it is asked for.
"""

from argparse import Namespace
from importlib import import_module
from typing import Any

from .folders import NOTEBOOKS, has_lessons

CHECKOUT = 'run make lab, or python -m pip install -e ".[lab]"'
INSTALL = "python -m pip install 'tinylm-lib[lab]'"
# Each with its module, its help, and what to do where a package is missing that it needs. It says
# itself what its options are.
PROGRAMS = {
    "lab": (
        "course.lab",
        "open the lessons in JupyterLab: lab [NN] [--work FOLDER] [its own options]",
        CHECKOUT,
    ),
    "grade": (
        "course.grading.command",
        "grade submitted notebooks: grade FOLDER [--help]",
        CHECKOUT,
    ),
    "page": ("page.command", "write a model as one HTML file: page SOURCE [--help]", INSTALL),
    "site": (
        "course.site",
        "write the lessons as an offline site: site [NN ...] [--help]",
        CHECKOUT,
    ),
    "slides": ("course.slides", "write the lessons as slides: slides [NN ...] [--help]", CHECKOUT),
}


def add_commands(commands: Any) -> None:
    """Add the commands of the course to a command line; its help names those that can run here."""
    commands.add_parser("doctor", help="check this machine and say what to fix").set_defaults(
        do=run_doctor
    )
    for name, (_, says, _) in PROGRAMS.items():
        shown = {"help": says} if name == "page" or has_lessons() else {}
        commands.add_parser(name, add_help=False, **shown).set_defaults(do=run_program, others=())


def run_doctor(arguments: Namespace) -> None:
    """Check the machine; exit with 1 if something needs a fix."""
    from .course.doctor import checkup, report

    findings = checkup()
    # the marks are for notebooks, whose outputs are compared
    print(report(findings).replace("⟨", "").replace("⟩", ""))
    if any(finding.fix for finding in findings):
        raise SystemExit(1)


def run_program(arguments: Namespace) -> None:
    """Hand all further arguments to a program of the course."""
    name = arguments.command
    module, _, fix = PROGRAMS[name]
    if fix == CHECKOUT and not NOTEBOOKS.is_dir():
        raise FileNotFoundError(
            f"{name} needs the lessons, which are not installed with the library; get a "
            f"checkout of the repository, and in it {CHECKOUT}"
        )
    try:
        program = import_module(f".{module}", __package__)
    except ModuleNotFoundError as e:
        raise ModuleNotFoundError(f"{e}, which tinylm {name} needs; {fix}") from None
    raise SystemExit(program.main(arguments.others))
