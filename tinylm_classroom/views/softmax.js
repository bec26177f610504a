// Softmax as a mixing desk: scores that are dragged, the probabilities above them, and what fp32 makes of the exponentials.

const DESK = `
.tinylm-view.softmax {
  .desk { position: relative; display: flex; gap: 10px; padding-left: 44px; margin: 0 0 12px; font-size: var(--type-label); font-variant-numeric: tabular-nums; text-align: center }
  .channel { flex: 1 1 0; min-width: 0; max-width: 180px } .channel > * { display: block; white-space: nowrap } .exp, .name { line-height: 24px }
  .share { position: absolute; left: 50%; translate: -50%; padding: 0 5px; background: var(--paper); line-height: 24px; font-weight: 700; white-space: nowrap } .share u { text-decoration: none } .name { font-size: var(--type-text); font-weight: 700; overflow: hidden; text-overflow: ellipsis } .exp { color: var(--quiet); font-size: var(--type-small) } .exp.lost { color: var(--bad); font-weight: 700 }
  .level { position: relative; height: 156px; padding-top: 26px; border-bottom: 2px solid var(--quiet) }
  .level i { position: absolute; inset: auto 12% 0; min-height: 2px; border-radius: 5px 5px 0 0; background: var(--accent) }
  .level s { position: absolute; inset-inline: 12%; border-top: 2px dashed var(--quiet) } .level [hidden] { display: none }
  .fader { position: relative; height: 176px; border-radius: 8px } .fader i { position: absolute; left: calc(50% - 3px); width: 6px; inset-block: 8px; border-radius: 3px; background: var(--line) }
  .fader b { position: absolute; left: max(0px, 50% - 38px); right: max(0px, 50% - 38px); height: 30px; line-height: 26px; border: 2px solid var(--accent); border-radius: 8px; background: var(--paper); color: var(--ink) }
  .fader:hover b { background: var(--soft) } .fader:has(:active) b, .channel.on b { background: var(--accent); color: var(--on-accent) } .fader:has(:focus-visible) b { outline: 3px solid var(--focus); outline-offset: 2px }
  .fader input { position: absolute; inset: 0; width: 100%; height: 100%; margin: 0; opacity: 0; cursor: grab; writing-mode: vertical-lr; direction: rtl; touch-action: none; appearance: none }
  .fader input:active { cursor: grabbing } ::-webkit-slider-thumb { appearance: none; width: 30px; height: 30px } ::-moz-range-thumb { width: 30px; height: 30px; border: 0 }
  .slide input { appearance: auto } .slide ::-webkit-slider-thumb { appearance: auto }
  .tape { position: absolute; inset: auto 0 0; height: 176px; overflow: hidden; border-radius: 8px; background: var(--soft); text-align: left; color: var(--quiet) } .tape > * { position: absolute; inset-inline: 0; border-top: 1px solid var(--line); padding-left: 6px; line-height: 18px }
  .tape .over { top: 0; border: 0; border-bottom: 3px solid var(--bad); background: repeating-linear-gradient(135deg, color-mix(in srgb, var(--bad) 30%, transparent) 0 2px, transparent 2px 8px) }
  .whole { position: absolute; left: 0; top: 19px; height: 144px; display: grid; align-content: space-between; line-height: 1; color: var(--quiet) }
  .say { min-height: 2.7em; margin: 0 0 4px } .why { margin: 0; min-height: 3em; color: var(--quiet) } .why b { color: var(--ink) } .slide { color: var(--ink) } .slide .value { min-width: 5.2em }
  @container (max-width: 560px) { .desk { gap: 2px; padding-left: 32px; font-size: var(--type-small) } .exp:not(.lost) { visibility: hidden } .share u { display: none } .fader b { inset-inline: 0; font-weight: 400 }
    .name { font-size: var(--type-small); font-weight: 400; white-space: normal; overflow-wrap: anywhere; letter-spacing: -.2px; hyphens: auto; line-height: 18px; height: 36px } .tape > * { padding-left: 2px } .say { min-height: 5.4em } .why { min-height: 6em } }
  @media (prefers-reduced-motion: no-preference) { .level :is(i, .share) { transition: height 90ms, bottom 90ms } }
}
`;

const WARMTHS = [0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20, 50, 100], MOST_SHIFT = 100;
const END = Math.log((2 - 2 ** -23) * 2 ** 127); // exp of more is too large for fp32
const f = Math.fround; // the nearest number that fp32 can hold

/** Exponentials, their sum and the probabilities, every result rounded to fp32 as it would be there. */
function share(exponents) {
  const powers = exponents.map((x) => f(Math.exp(x))), sum = powers.reduce((a, b) => f(a + b));
  return { powers, sum, shares: powers.map((x) => f(x / sum)) };
}

function compute(scores, shift, warmth) {
  const shifted = scores.map((x) => f(f(x) + f(shift))), best = shifted.indexOf(Math.max(...shifted));
  if (!warmth) return { shifted, best, stable: { shares: shifted.map((_, i) => Number(i === best)) } };
  const scaled = shifted.map((x) => f(x / f(warmth)));
  return { shifted, best, scaled, naive: share(scaled), stable: share(scaled.map((x) => f(x - scaled[best]))) };
}

/** A positive number in three digits: 0.132, 42.0, 5,064 or 3.4×10³⁸; inf and NaN as torch prints them. */
function short(x) {
  if (!Number.isFinite(x)) return Number.isNaN(x) ? "NaN" : "inf";
  if (x === 0) return "0";
  if (x >= 0.00995 && x < 9999.5) return x >= 99.95 ? Math.round(x).toLocaleString("en") : x.toPrecision(3);
  const [digits, power] = x.toExponential(1).split("e");
  return `${digits}×10${[...String(Number(power))].map((c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c])).join("")}`;
}
const percent = (x) => (Number.isNaN(x) ? "NaN" : `${fixed(100 * x, 1)}\u00a0%`);
/** A ratio in two digits. */
const about = (x) => (x < 9999.5 ? Number(x.toPrecision(2)).toLocaleString("en") : short(x));

function mount(el, { names, scores: given }) {
  const low = Math.floor(Math.min(...given)) - 5, high = Math.ceil(Math.max(...given)) + 5, span = high - low;
  const state = { scores: [...given], shift: 0, warmth: 1 };
  // hand: what moved last, the number of a score or the name of a dial. isOver: a new move begins. before: what was there before.
  let hand = null, isOver = false, before = null, now = compute(given, 0, 1);
  const say = make("p", { class: "say" }), why = make("p", { class: "why" }), live = make("p", { class: "unseen", role: "status" }), tape = make("div", { class: "tape", "aria-hidden": "true" });
  const place = (score, more) => `calc((100% - 30px) * ${(score - low) / span} + ${more}px)`; // a knob has 30 pixels
  const move = (i, score) => set({ scores: state.scores.with(i, Math.min(high, Math.max(low, Number(score.toFixed(4))))) }, i);
  const channels = names.map((name, i) => {
    const input = make("input", { type: "range", min: low, max: high, step: "any", "aria-label": `score of ${name}`, "aria-orientation": "vertical" });
    input.addEventListener("input", () => move(i, Number(input.value)));
    input.addEventListener("pointerdown", () => { isOver = true; });
    input.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 0.1, ArrowUp: 0.1, ArrowLeft: -0.1, ArrowDown: -0.1, PageUp: 1, PageDown: -1 }[event.key];
      if (by === undefined) return;
      event.preventDefault();
      move(i, state.scores[i] + by);
    });
    const share = make("span", { class: "share" }), bar = make("i"), ghost = make("s"), power = make("span", { class: "exp" }), knob = make("b", { "aria-hidden": "true" });
    const box = make("div", { class: "channel" }, make("div", { class: "level" }, bar, ghost, share), make("span", { class: "name" }, name), power, make("div", { class: "fader" }, make("i"), knob, input));
    return { input, share, bar, ghost, power, knob, box };
  });

  function draw() {
    const { shifted, naive, stable } = now;
    channels.forEach(({ input, share, bar, ghost, power, knob, box }, i) => {
      box.classList.toggle("on", i === hand);
      input.value = state.scores[i];
      knob.textContent = fixed(shifted[i], 2);
      input.setAttribute("aria-valuetext", `${knob.textContent}, probability ${percent(stable.shares[i])}`);
      knob.style.bottom = place(state.scores[i], 0);
      const p = stable.shares[i], old = before?.stable.shares[i] ?? p, height = (part) => `calc((100% - 26px) * ${part})`;
      share.replaceChildren(fixed(100 * p, 1), make("u", {}, "\u00a0%"));
      bar.style.height = share.style.bottom = height(p);
      ghost.style.bottom = height(old);
      ghost.hidden = Math.abs(p - old) < 0.001;
      power.textContent = naive ? short(naive.powers[i]) : "–";
      power.classList.toggle("lost", !naive || !Number.isFinite(naive.powers[i]) || !naive.sum);
    });
    const step = [1, 2, 5, 10, 20, 50, 100, 200, 500].find((each) => span / each <= 7) ?? span, first = Math.ceil((low + state.shift) / step - 1);
    const lines = Array.from({ length: 10 }, (_, n) => (first + n) * step).filter((value) => value - state.shift >= low && value - state.shift < high + 0.1 * span), end = END * state.warmth - state.shift;
    tape.replaceChildren(...(state.warmth && end < high + 0.1 * span ? [make("div", { class: "over", style: `bottom: ${place(end, 15)}` })] : []),
      ...lines.map((value) => make("div", { style: `top: calc(100% - ${place(value - state.shift, 15)})` }, fixed(value, 0))));
    say.replaceChildren(...prose(told()));
    why.replaceChildren(...prose(because()));
  }

  /** The score that the words are about: the one that moved last, or the largest. */
  const subject = () => (typeof hand === "number" ? hand : now.best);

  /** What the last move did, in numbers. */
  function told() {
    const { shares } = now.stable, old = before?.stable.shares, i = subject(), gets = `**${names[i]}** gets **${percent(shares[i])}**`;
    if (!before) return `${gets}, the largest part. Drag a knob up or down: what happens to the others?`;
    const instead = percent(shares[i]) === percent(old[i]) ? `${gets}, as before` : `${gets} instead of ${percent(old[i])}`;
    if (hand === "shift") return `${state.shift} added to every score: **no probability changes**. ${instead}.`;
    if (hand === "warmth") return `Temperature ${before.warmth} → **${state.warmth}**: ${instead}.`;
    const others = 1 - old[i] < 1e-6 || !state.warmth ? "" : ` Each of the others has **${about((1 - shares[i]) / (1 - old[i]))}** times what it had.`;
    return `Score ${fixed(before.shifted[i], 2)} → **${fixed(now.shifted[i], 2)}**: ${instead}.${others}`;
  }

  function because() {
    const { scaled, shifted, best, naive } = now;
    if (!state.warmth) return "Nothing can be divided by 0. But small temperatures lead to a choice that is called **greedy**: the largest score gets everything.";
    if (naive.sum === Infinity) return `exp(${fixed(scaled[best], 2)}) is more than fp32 can hold: its largest number is exp(${END.toFixed(2)}), about 3.4×10³⁸. The simple formula gives inf ÷ inf = **NaN**. The bars subtract the largest score first, so no exponential is above 1.`;
    if (naive.sum === 0) return "Every exponential is too small for fp32, so the simple formula divides 0 ÷ 0: **NaN**. The bars subtract the largest score first, so one exponential is 1.";
    if (hand === "shift") return "Every exponential grows by the same factor, and so does their sum.";
    if (hand === "warmth" && state.warmth < 1) return "Below 1 the temperature makes every difference larger: the largest score gets more.";
    if (hand === "warmth" && state.warmth > 1) return "Above 1 the temperature makes every difference smaller: the probabilities become more alike.";
    const i = subject(), [at] = [...names.keys()].filter((each) => each !== i).sort((a, b) => shifted[b] - shifted[a]), gap = Math.abs(shifted[i] - shifted[at]);
    if (gap < 0.005) return `It has as much as **${names[at]}**: their scores are equal.`;
    const divided = state.warmth === 1 ? "" : ` ÷ ${state.warmth}`, isAhead = shifted[i] > shifted[at];
    return `${fixed(gap, 2)} ${isAhead ? "above" : "below"} **${names[at]}**: its probability is exp(${fixed(gap, 2)}${divided}) ≈ **${about(Math.exp(gap / state.warmth))}** times as ${isAhead ? "large" : "small"}.`;
  }

  function set(change, by) {
    if (by !== hand || isOver) [hand, isOver, before] = [by, false, by === null ? null : { ...now, warmth: state.warmth }];
    Object.assign(state, change);
    now = compute(state.scores, state.shift, state.warmth);
    draw();
    live.textContent = `${say.textContent} ${why.textContent}`;
  }
  const dials = [
    slider("Temperature T", { min: 0, max: WARMTHS.length - 1, value: WARMTHS.indexOf(1) }, (at) => (WARMTHS[at] ? String(WARMTHS[at]) : "0, greedy"), (at) => set({ warmth: WARMTHS[at] }, "warmth")),
    slider("Add to all scores", { min: 0, max: MOST_SHIFT, value: 0 }, (x) => `+ ${x}`, (shift) => set({ shift }, "shift")),
  ];
  const reset = () => {
    const start = [WARMTHS.indexOf(1), 0];
    dials.map((dial) => dial.querySelector("input")).forEach((input, i) => {
      input.value = start[i];
      input.dispatchEvent(new Event("input"));
    });
    set({ scores: [...given] }, null);
  };
  const view = frame(el, "Softmax", make("style", {}, DESK), make("p", { class: "title" }, "How do scores become probabilities?"),
    make("p", { class: "sub" }, "Drag the scores below: softmax makes the bars above. Between them is exp(score ÷ T)."),
    make("div", { class: "bar" }, ...dials, make("button", { type: "button", class: "plain", onclick: reset }, "Reset")),
    make("div", { class: "desk" }, tape, make("div", { class: "whole", "aria-hidden": "true" }, ...["100 %", "50 %", "0"].map((each) => make("span", {}, each))), ...channels.map(({ box }) => box)), say, why, live);
  view.classList.add("softmax");
  draw();
}

export default {
  initialize,
  render({ model, el }) {
    const draw = () => mount(el, model.get("data"));
    draw();
    model.on("change:data", draw);
    return () => model.off("change:data", draw);
  },
};
