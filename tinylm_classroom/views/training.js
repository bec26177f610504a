// A training run: the loss between known levels, learning rate, gradient norm and what the model writes.

const LOOK = `
.tinylm-view.training .samples { margin: 0 0 8px; padding: 0; list-style: none }
.tinylm-view.training .samples li { display: grid; grid-template-columns: 6em 1fr; gap: 12px; padding: 3px 10px; margin: 0; border-radius: 6px; color: var(--quiet); line-height: 1.3;
  font-size: calc(var(--type-text) * 1.1) }
.tinylm-view.training .samples li.on { background: var(--soft); color: var(--ink) }
.tinylm-view.training .samples b { font-weight: 400; white-space: nowrap; font-variant-numeric: tabular-nums; font-size: var(--type-label); line-height: calc(var(--type-text) * 1.43) }
.tinylm-view.training .samples .on b { font-weight: 700 }
.tinylm-view.training .samples span { overflow-wrap: anywhere }
.tinylm-view.training .samples .later { visibility: hidden }
`;

function render(place) {
  const samples = make("ol", { class: "samples", "aria-label": "What the model writes" });
  const visible = (text) => text.replaceAll("\n", " ↵ ") || "␣";
  const begun = (text, most) => (text.length > most ? `${text.slice(0, text.lastIndexOf(" ", most))} …` : text);

  function lay({ data, charts, wide, half, narrow, grown }) {
    const { steps, loss, smooth, share, norm, levels, total } = data, known = levels.map(([name, value]) => [`knowing ${name}`, value]);
    const top = 1.08 * Math.max(...levels.map(([, value]) => value), ...smooth, 0.1);
    const longest = Math.max(...levels.map(([name]) => `${name}0.00 knowing `.length)), less = grown > 1 ? 92 : 84, falls = share.some((part) => part !== share[0]);
    const high = (grown > 1 ? 94 : 176) + (falls ? 0 : less + 30);
    const main = chart("Loss in nats per token over the updates", { wide, high: narrow ? 260 : high, right: narrow ? 16 : Math.max(290, 8.9 * longest * grown), total, top, grown,
      lines: [["raw", steps, loss], ["line", steps, smooth]], levels: narrow ? [] : known, count: 6 });
    const small = !falls ? [] : [smallChart(data, "learning rate, fraction of its peak", "second", share, { wide: half, high: less, top: 1, grown }),
      smallChart(data, "gradient norm, before clipping", "third", norm, { wide: half, high: less, top: 1.1 * Math.max(...norm, 0.1), grown })];
    const lines = narrow ? [make("p", { class: "quiet" }, `To compare: ${known.map(([name, value]) => `${fit(value)} ${name}`).join(", ")}.`)] : [];
    charts.replaceChildren(make("figure", {}, make("figcaption", {}, "loss in nats per token; light: each point, bold: smoothed; below: updates"), main.picture),
      ...lines, ...(falls ? [make("div", { class: "small" }, ...small.map((one) => one.figure))] : []));
    samples.replaceChildren(...data.samples.map(([step, text]) => make("li", {}, make("b", {}, step ? `update ${step}` : "before"), make("span", {}))));
    return [(i) => main.mark(steps[i], smooth[i]), ...small.map((one) => one.mark), (i) => {
      const newest = data.samples.filter(([step]) => step <= steps[i]).length - 1;
      [...samples.children].forEach((line, at) => {
        const text = visible(data.samples[at][1]);
        line.lastChild.textContent = at === newest ? text : begun(text, narrow ? 20 : 60);
        line.className = at > newest ? "later" : at === newest ? "on" : "";
        line.setAttribute("aria-current", String(at === newest));
      });
    }];
  }

  function tell({ steps, smooth, levels, total }, i) {
    const order = [...levels].sort((a, b) => a[1] - b[1]), worse = order.find(([, value]) => value > smooth[i]), better = order.filter(([, value]) => value <= smooth[i]).pop();
    const parts = [worse && `better than knowing ${worse[0]} (${fit(worse[1])})`, better && `**${fit(smooth[i] - better[1])}** above knowing ${better[0]}`];
    return `After update **${steps[i]}** of ${total} the loss is about **${fit(smooth[i])}** nats per token: ${parts.filter(Boolean).join(", ")}.`;
  }

  return runView(place, "training", { name: "A training run", title: "How far has it learned?", look: LOOK, lay, tell,
    above: samples,
    sub: "The dotted lines are the losses of predictors that know only so much." });
}

export default { initialize, render };
