// Learning from rewards: the mean reward over the updates, and what the model writes, with its first mistake.

const LOOK = `
.tinylm-view.rewards {
  .texts { margin: 6px 0 0; padding: 0; list-style: none } .texts li { padding: 8px 14px; margin: 0 0 6px; border-radius: 8px; border-left: 5px solid var(--good); background: var(--soft); line-height: 1.5; overflow-wrap: anywhere }
  .texts li.wrong { border-color: var(--bad) } .texts b { display: block } .wrong b { color: var(--bad) } .texts :is(.given, .after) { color: var(--quiet) } .given { font-style: italic }
  mark { background: none; color: var(--bad); font-weight: 700; text-decoration: underline wavy; text-underline-offset: 3px }
  .head { margin: 8px 0 0; font-size: var(--type-label); color: var(--quiet) } summary { padding: 4px 0; width: max-content; cursor: pointer; color: var(--accent) } details .texts { font-size: var(--type-label) }
}
`;

function render(place) {
  const head = make("p", { class: "head" }), texts = make("ol", { class: "texts", "aria-label": "What the model writes, and what it is worth" });
  const example = make("ol", { class: "texts" }), all = make("details", {}, make("summary", {}, "All its texts in full"), texts), samples = make("div", {}, head, example, all);

  /** A text: what it is worth and where it fails, then what was given, what is possible, the first mistake, and what follows it. */
  const line = ([worth, given, possible, wrong, after], before = given + possible) => make("li", { class: wrong ? "wrong" : "" },
    make("b", {}, wrong ? `✗ reward ${fit(worth)}: word ${before.trim().split(/\s+/).length + 1} is its first mistake` : `✓ reward ${fit(worth)}: no mistake`),
    make("span", {}, make("span", { class: "given" }, given), possible, ...(wrong ? [make("mark", {}, wrong)] : []), make("span", { class: "after" }, after)));

  function lay({ data, charts, wide, narrow, grown }) {
    const { steps, reward, smooth, total } = data, slide = grown > 1, top = Math.max(...reward, ...smooth, 1e-3), bottom = Math.min(0, ...reward);
    head.hidden = all.hidden = slide;
    const main = chart("Mean reward of an update's texts", { wide, high: narrow ? 240 : 190, right: 16, total, top: top + 0.04 * (top - bottom), bottom, grown,
      lines: [["raw", steps, reward], ["line", steps, smooth]], count: 5 });
    charts.replaceChildren(make("figure", {}, make("figcaption", {}, "mean reward; light: each point, bold: smoothed; below: updates"), main.picture));
    return [(i) => main.mark(steps[i], smooth[i]), (i) => {
      const [step, written] = data.samples.filter(([step]) => step <= steps[i]).pop() ?? [0, []];
      head.textContent = step ? `One of its texts for update ${step}. Italic: the beginning that it was given.` : "";
      example.replaceChildren(...written.slice(Math.max(0, written.findIndex((text) => text[3]))).slice(0, 1).map((text) => line(text))); // one with a mistake, if there is one
      texts.replaceChildren(...written.map((text) => line(text)));
    }];
  }

  const tell = ({ steps, smooth, kl, total }, i) =>
    `At update **${steps[i]}** of ${total} the mean reward is about **${fit(smooth[i])}**, and the model is **${fixed(kl[i], 3)}** nats per token away from its start.`;

  return runView(place, "rewards", { name: "Learning from rewards", title: "What does the reward make of the model?", look: LOOK, below: samples, lay, tell,
    sub: "Each text that the model writes gets a reward; the better ones become more likely. Go back through the updates." });
}

export default { initialize, render };
