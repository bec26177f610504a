"""Run pip, with the wheel of this checkout in the place of the repository's address."""

import os
import re
import runpy
import sys
from pathlib import Path

FROM_REPOSITORY = re.compile(r"^(tinylm-lib\S*) @ git\+https://\S+$")

sys.path.remove(str(Path(__file__).parents[1]))
del sys.modules["pip"]
wheel = os.environ["TINYLM_WHEEL"]
sys.argv = [FROM_REPOSITORY.sub(rf"\1 @ {wheel}", argument) for argument in sys.argv]
runpy.run_module("pip", run_name="__main__", alter_sys=True)
