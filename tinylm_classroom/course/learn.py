"""The page of the site on which a model learns, from nothing, in the browser of a visitor."""

import math
from string import Template

from tinylm_lib.cost import count_parameters

from ..display.theme import page_head
from ..folders import own
from ..live.scripts import learning_script
from ..live.stories import stories_record
from ..page.export import writer_script
from ..views.base import SHARED, json_in_html, source
from ..views.watch_learning import ENGINE_CONFIG, learner_config, learning_view

LEARN = "learn.html"
TITLE = "A model learns in this page"
DESCRIPTION = (
    "A language model is trained from nothing in your browser: watch its loss fall towards the "
    "exact floor, read what it writes, and break it."
)


def learn_page() -> str:
    """The whole page: it fetches nothing, and without scripts it shows a recorded run."""
    view = learning_view()
    levels = view.data["entropies"]
    kept = Template(own("page/page.html")).safe_substitute(head=page_head("A model that learned"))
    options = {
        "data": {**view.data, "isPage": True},
        "rules": stories_record(),
        "template": kept,
        "engineConfig": ENGINE_CONFIG,
    }
    module = source("watch_learning").replace("export default", "globalThis.learningView =")
    parts = [source(SHARED), module, own("course/learn.js")]
    body = "\n".join(parts)
    script = f"{learning_script()}(() => {{\n{body}\n}})();"
    if "</script" in script.lower():
        raise ValueError("a script may not hold </script: the page would end there")
    config = learner_config()
    return Template(own("course/learn.html")).substitute(
        head=page_head(TITLE),
        title=TITLE,
        description=DESCRIPTION,
        parameters=f"{count_parameters(config).total:,}",
        picture=view.html,
        floor=f"{levels['floor']:.2f}",
        nothing=f"{math.log(config.vocab_size):.2f}",
        unigram=f"{levels['unigram']:.2f}",
        bigram=f"{levels['bigram']:.2f}",
        options=json_in_html(options),
        writer=writer_script(),
        script=script,
    )
