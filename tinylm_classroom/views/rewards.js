// Learning from rewards: the reward and the distance from the start over the updates, and texts with their first mistake.

const LOOK = `
.tinylm-view.rewards .texts { margin: 6px 0 0; padding: 0; list-style: none }
.tinylm-view.rewards .texts li { display: grid; grid-template-columns: 104px 1fr; gap: 12px; padding: 5px 10px; margin: 0 0 6px; border-radius: 6px; background: var(--soft);
  font-size: var(--type-label); line-height: 1.5; overflow-wrap: anywhere }
.tinylm-view.rewards .texts b { font-variant-numeric: tabular-nums }
.tinylm-view.rewards .texts .after { color: var(--quiet) }
.tinylm-view.rewards .texts mark { background: none; color: var(--bad); font-weight: 700; text-decoration: underline wavy; text-underline-offset: 3px }
.tinylm-view.rewards .texts .given { color: var(--quiet); font-style: italic }
.tinylm-view.rewards .head { margin: 8px 0 0; font-size: var(--type-label); color: var(--quiet) }
.tinylm-view.rewards summary { padding: 4px 0; width: max-content; cursor: pointer; color: var(--accent) }
`;

function render(place) {
  const head = make("p", { class: "head" }), texts = make("ol", { class: "texts", "aria-label": "What the model writes, and what it is worth" });
  const example = make("ol", { class: "texts" }), all = make("details", {}, make("summary", {}, "All its texts in full"), texts), samples = make("div", {}, head, example, all);

  /** A text: what was given, what is possible, the first mistake, and what follows it. */
  const line = ([worth, given, possible, wrong, after]) => make("li", {}, make("b", {}, `reward ${fit(worth)}`),
    make("span", {}, make("span", { class: "given" }, given), possible, ...(wrong ? [make("mark", { title: "the first mistake" }, wrong)] : []), make("span", { class: "after" }, after)));

  /** What there is always room for: one text, if possible with a mistake, and only the words around the mistake. */
  const short = ([worth, given, possible, wrong, after]) => (wrong ? [worth, "", `… ${(given + possible).slice(-150).replace(/^\S*\s/, "")}`, wrong, ` ${after.trim().slice(0, 40)} …`]
    : [worth, "", `… ${possible.slice(-150).replace(/^\S*\s/, "")}`, "", ""]);
  const shortest = (texts) => texts.slice(Math.max(0, texts.findIndex((text) => text[3]))).slice(0, 1).map(short);

  function lay({ data, charts, wide, half, narrow, grown }) {
    const { steps, reward, smooth, kl, entropy, total } = data, slide = grown > 1, high = slide ? 220 : 158, less = slide ? 103 : 82;
    head.hidden = all.hidden = slide;
    const top = Math.max(...reward, ...smooth, 1e-3), bottom = Math.min(0, ...reward);
    const main = chart("Mean reward of an update's texts", { wide, high: narrow ? 280 : high, right: 16, total, top: top + 0.04 * (top - bottom), bottom, grown,
      lines: [["raw", steps, reward], ["line", steps, smooth]], count: 5 });
    const small = [["distance from the start, nats per token", "second", kl], ["entropy, nats per token", "third", entropy]].map(([name, kind, values]) =>
      smallChart(data, name, kind, values, { wide: half, high: less, top: 1.1 * Math.max(...values, 1e-3), grown }, 3));
    charts.replaceChildren(make("figure", {}, make("figcaption", {}, "mean reward; light: each point, bold: smoothed; below: updates"), main.picture),
      make("div", { class: "small" }, ...small.map((one) => one.figure)));
    return [(i) => main.mark(steps[i], smooth[i]), ...small.map((one) => one.mark), (i) => {
      const newest = data.samples.filter(([step]) => step <= steps[i]).pop();
      head.textContent = newest ? `What the model wrote for update ${newest[0]}. Italic: the beginning that it was given. Wavy: its first mistake.` : "";
      const written = newest ? newest[1] : [];
      example.replaceChildren(...shortest(written).map(line));
      texts.replaceChildren(...written.map(line));
    }];
  }

  const tell = ({ steps, smooth, kl, total }, i) =>
    `At update **${steps[i]}** of ${total} the mean reward is about **${fit(smooth[i])}**, and the model is **${fixed(kl[i], 3)}** nats per token away from its start.`;

  return runView(place, "rewards", { name: "Learning from rewards", title: "What does the reward make of the model?", look: LOOK, below: samples, lay, tell,
    sub: "Each text that the model writes gets a reward; the better ones become more likely." });
}

export default { initialize, render };
