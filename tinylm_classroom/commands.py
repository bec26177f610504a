"""What the course adds to the command line: tinylm doctor | lab | grade | page | site | slides.

`tinylm_lib` finds `add_commands` by the entry point in pyproject.toml. A program is imported when
it is asked for.
"""

from argparse import Namespace
from importlib import import_module
from typing import Any

CHECKOUT = (
    "get a checkout of the repository, which has them: run make lab in it, or python -m pip "
    'install -e ".[lab]"'
)
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
    """Add the commands of the course to a command line."""
    commands.add_parser("doctor", help="check this machine and say what to fix").set_defaults(
        do=run_doctor
    )
    for name, (_, says, _) in PROGRAMS.items():
        commands.add_parser(name, help=says, add_help=False).set_defaults(do=run_program, others=())


def run_doctor(arguments: Namespace) -> None:
    """Check the machine; exit with 1 if something needs a fix."""
    from .course.doctor import checkup, report

    findings = checkup()
    print(report(findings))
    if any(finding.fix for finding in findings):
        raise SystemExit(1)


def run_program(arguments: Namespace) -> None:
    """Hand all further arguments to a program of the course."""
    module, _, fix = PROGRAMS[arguments.command]
    try:
        program = import_module(f".{module}", __package__)
    except ModuleNotFoundError as e:
        raise ModuleNotFoundError(f"{e}, which tinylm {arguments.command} needs; {fix}") from None
    raise SystemExit(program.main(arguments.others))
