// Where a model's parameters are, as areas, and the bytes of training and inference, as bars compared with devices.

const MEMORY = `
.tinylm-view.memory .say { font-size: calc(var(--type-text) + 2px); min-height: 1.35em; margin-bottom: 6px } .tinylm-view.memory .bar { gap: 8px 16px; margin-bottom: 8px } .tinylm-view.memory .sub { margin-bottom: 8px }
.tinylm-view.memory .slide input { width: 96px }
.tinylm-view.memory .map { display: flex; height: 104px; gap: 3px; margin: 0 0 6px }
.tinylm-view.memory .column { display: flex; flex-direction: column; gap: 3px; min-width: 8px; flex-basis: 0 }
.tinylm-view.memory .tile { flex-basis: 0; min-height: 0; container-type: size; cursor: pointer; border-radius: 4px; overflow: hidden;
  background: linear-gradient(90deg, var(--hue) 5px, color-mix(in srgb, var(--hue) var(--much, 22%), var(--paper)) 5px); position: relative }
.tinylm-view.memory .tile.head { background: linear-gradient(90deg, var(--hue) 5px, transparent 5px),
  repeating-linear-gradient(135deg, color-mix(in srgb, var(--hue) var(--much, 22%), var(--paper)) 0 7px, var(--paper) 7px 10px) }
.tinylm-view.memory i.head { background: repeating-linear-gradient(135deg, var(--hue) 0 4px, var(--paper) 4px 6px); border: 1px solid var(--hue) }
.tinylm-view.memory .tile:hover { --much: 38% }
.tinylm-view.memory .tile[aria-selected="true"] { box-shadow: inset 0 0 0 3px var(--focus) }
.tinylm-view.memory .tile:focus-visible { outline: 3px solid var(--focus); outline-offset: 1px; z-index: 1 }
.tinylm-view.memory .tile span { position: absolute; left: 10px; top: 2px; right: 2px; line-height: 1.25; font-size: var(--type-label) }
.tinylm-view.memory .tile small { display: block; font-size: var(--type-small); color: var(--ink); white-space: nowrap }
@container (max-width: 50px) or (max-height: 20px) { .tinylm-view.memory .tile span { display: none } }
@container (max-height: 45px) { .tinylm-view.memory .tile small { display: none } }
.tinylm-view.memory .key { display: flex; flex-wrap: wrap; gap: 4px 8px; margin: 0 0 10px; font-size: var(--type-small) }
.tinylm-view.memory .key button { display: flex; gap: 6px; align-items: center; padding: 1px 6px 1px 0; border: 0; background: none; color: var(--ink) }
.tinylm-view.memory i { display: inline-block; width: 16px; height: 16px; border-radius: 4px; background: var(--hue) }
.tinylm-view.memory .heading { font-weight: 700; font-size: 18px; margin: 0 0 4px; padding-top: 6px; border-top: 1px solid var(--line) }
.tinylm-view.memory .bytes { display: grid; grid-template-columns: max-content 1fr max-content; gap: 4px 14px; align-items: center; margin: 22px 0 4px; font-size: var(--type-label) }
.tinylm-view.memory .line { position: relative; height: 22px; display: flex; background: var(--soft); border-radius: 4px }
.tinylm-view.memory .stack { height: 100%; background: var(--hue); box-shadow: inset -2px 0 var(--paper); min-width: 3px }
.tinylm-view.memory .bytes > .name { grid-column: 1 }
.tinylm-view.memory .parts { grid-column: 2; display: flex; flex-wrap: wrap; gap: 2px 20px; margin-bottom: 4px; font-size: var(--type-small) }
.tinylm-view.memory .parts span { white-space: nowrap } .tinylm-view.memory .parts i { width: 13px; height: 13px; margin-right: 7px; vertical-align: -2px }
.tinylm-view.memory .device { position: absolute; top: -4px; bottom: -4px; border-left: 3px dashed var(--focus) }
.tinylm-view.memory .device b { position: absolute; bottom: 100%; right: -2px; white-space: nowrap; font-weight: 600; font-size: var(--type-small); color: var(--ink) }
.tinylm-view.memory .total { text-align: right; font-weight: 700; font-variant-numeric: tabular-nums }
.tinylm-view.memory .told { font-size: calc(var(--type-text) + 1px); line-height: 1.35; margin: 0 0 4px } .tinylm-view.memory .told b { color: var(--accent) }
.tinylm-view.memory .note { color: var(--quiet); font-size: var(--type-small); line-height: 1.35; margin: 4px 0 0 }
@container (max-width: 620px) { .tinylm-view.memory .bytes { grid-template-columns: 1fr max-content }
  .tinylm-view.memory .line { grid-column: 1 / -1; order: var(--at); margin-top: 18px } .tinylm-view.memory .bytes > * { order: calc(var(--at) - 1) }
  .tinylm-view.memory .bytes > .line { order: var(--at) } .tinylm-view.memory .bytes > .parts { order: var(--at); grid-column: 1 / -1 } }
`;

const WORD = { fp32: 4, bf16: 2 };
const many = (n) => n.toLocaleString("en-US");
/** A number of parameters in words, a number of bytes in its unit, a fraction in percent: three digits. */
const digits = (x) => x.toFixed(x < 9.995 ? 2 : x < 99.95 ? 1 : 0);
const counted = (n) => (n >= 1e9 ? `${digits(n / 1e9)} billion` : n >= 1e6 ? `${digits(n / 1e6)} million` : many(n));
const bytes = (n) => {
  const [size, unit] = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]].find(([size]) => n >= size) ?? [1, "bytes"];
  return `${size === 1 ? n : digits(n / size)} ${unit}`;
};
const percent = (share) => (share < 0.001 ? "under 0.1 %" : `${(100 * share).toFixed(1)} %`);
const summed = (parts) => parts.reduce((sum, part) => sum + part.n, 0);

function mount(el, { models, devices, source }) {
  const state = { model: 0, part: "up_proj", length: 10, batch: 0, word: "bf16" };
  const say = make("p", { class: "say" }), told = make("p", { class: "told" }), live = make("p", { class: "unseen", role: "status" });
  const map = make("div", { class: "map", role: "listbox", "aria-label": "the parts by their parameters", "aria-orientation": "horizontal" });
  const key = make("div", { class: "key" }), table = make("div", { class: "bytes" }), sliders = make("div", { class: "bar" });
  const model = () => models[state.model];
  const all = () => model().groups.flatMap((group) => group.parts.map((part) => ({ ...part, group: group.name })));
  const most = () => Math.ceil(Math.log2(model().longest)), length = () => Math.min(Math.max(state.length, 3), most());
  const tokens = () => Math.min(2 ** length(), model().longest);
  let tiles = [];

  function saying() {
    const part = all().find(({ name }) => name === state.part), of = part.group === part.title ? part.title : `${part.group}, ${part.title}`;
    return `**${of}**: **${counted(part.n)}** of ${counted(model().total)} parameters, **${percent(part.n / model().total)}**.`;
  }

  function select(name, focus) {
    state.part = name;
    tiles.forEach((tile) => {
      const isOn = tile.dataset.part === name;
      tile.setAttribute("aria-selected", String(isOn));
      tile.tabIndex = isOn ? 0 : -1;
      if (isOn && focus) tile.focus();
    });
    say.replaceChildren(...prose(saying()));
    live.textContent = say.textContent;
  }

  function drawMap() {
    if (!all().some(({ name }) => name === state.part)) state.part = all()[0].name;
    tiles = [];
    map.replaceChildren(...model().groups.map((group) => {
      const hue = `--hue: var(--part-${group.name})`, sum = summed(group.parts);
      return make("div", { class: "column", role: "group", "aria-label": group.name, style: `${hue}; flex-grow: ${sum / model().total}` }, ...group.parts.map((part) => {
        const tile = make("div", {
          class: group.name === "head" ? "tile head" : "tile", role: "option", "data-part": part.name, "data-lm-suppress-shortcuts": "true", style: `flex-grow: ${part.n / sum}`,
          "aria-label": `${group.name}, ${part.title}: ${many(part.n)} parameters, ${percent(part.n / model().total)}`,
          onclick: () => select(part.name, true), onpointermove: () => part.name === state.part || select(part.name, false),
        }, make("span", { "aria-hidden": "true" }, part.title, make("small", {}, percent(part.n / model().total))));
        tiles.push(tile);
        return tile;
      }));
    }));
    key.replaceChildren(...model().groups.map((group) => make("button", {
      type: "button", style: `--hue: var(--part-${group.name})`, onclick: () => select(group.parts[0].name, true),
    }, make("i", { class: group.name }), `${group.name} ${percent(summed(group.parts) / model().total)}`)));
    select(state.part, false);
  }

  function drawSliders() {
    const power = (n) => 2 ** n;
    sliders.replaceChildren(
      slider("Context", { min: 3, max: most(), value: length() }, (n) => `${many(Math.min(power(n), model().longest))} tokens`, (n) => { state.length = n; drawBytes(); }),
      slider("Batch", { min: 0, max: 8, value: state.batch }, (n) => `${power(n)} ${n ? "texts" : "text"}`, (n) => { state.batch = n; drawBytes(); }),
      segments("Inference in", "word", Object.keys(WORD).map((word) => [word, word]), state.word, (word) => { state.word = word; drawBytes(); }));
  }

  function drawBytes() {
    const { total, layers, kv_heads, d_head } = model(), word = WORD[state.word], batch = 2 ** state.batch;
    const cache = 2 * layers * batch * kv_heads * tokens() * d_head * word;
    const lines = [
      ["Training, fp32", [["weights", 4 * total], ["gradients", 4 * total], ["AdamW's two moments", 8 * total]]],
      [`Inference, ${state.word}`, [["weights", word * total], ["KV cache", cache]]],
    ];
    const sum = (stacks) => stacks.reduce((n, [, size]) => n + size, 0), most = Math.max(...lines.map(([, stacks]) => sum(stacks)));
    const hue = (title, i) => `--hue: var(--bytes-${title === "KV cache" ? 3 : i + 1})`;
    table.replaceChildren(...lines.flatMap(([name, stacks], at) => [
      make("span", { class: "name", style: `--at: ${2 * at + 1}` }, name),
      make("div", { class: "line", style: `--at: ${2 * at + 1}` },
        ...stacks.map(([title, size], i) => make("div", { class: "stack", style: `${hue(title, i)}; width: ${(100 * size) / most}%` })),
        ...devices.filter((device) => device.bytes <= most).map((device) => make("div", { class: "device", style: `left: ${(100 * device.bytes) / most}%` }, ...(at ? [] : [make("b", {}, `${device.bytes / 1e9} GB`)])))),
      make("span", { class: "total", style: `--at: ${2 * at + 1}` }, bytes(sum(stacks))),
      make("div", { class: "parts", style: `--at: ${2 * at + 1}` }, ...stacks.map(([title, size], i) => make("span", { style: hue(title, i) }, make("i"), `${title} ${bytes(size)}`)))]));
    const share = cache / sum(lines[1][1]), each = many(tokens());
    const who = batch > 1 ? `${batch} texts of ${each} tokens` : `one text of ${each} tokens`;
    told.replaceChildren(...prose(`For ${who} the KV cache takes **${bytes(cache)}**, **${percent(share)}** of what inference needs. Training takes **${bytes(16 * total)}** before it reads a text.`));
  }

  map.addEventListener("keydown", (event) => {
    const names = all().map(({ name }) => name), at = names.indexOf(state.part), end = names.length - 1;
    const next = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: end }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    select(names[Math.min(end, Math.max(0, next))], true);
  });
  const take = (at) => { state.model = at; drawMap(); drawSliders(); drawBytes(); };
  const view = frame(el, "Parameters and memory", make("style", {}, MEMORY), make("p", { class: "title" }, "Where are the parameters, and what memory do they take?"),
    make("p", { class: "sub" }, "An area is a part's parameters, all layers together. ← → walk through the parts."),
    make("div", { class: "bar" }, segments("Model", "model", models.map(({ name }, at) => [at, name]), 0, take)), say, map, key,
    make("p", { class: "heading" }, "How many bytes?"), sliders, told, table,
    make("p", { class: "note" }, `Gradients and AdamW's moments are kept in fp32. Activations come on top of training. ${source}`), live);
  view.classList.add("memory");
  take(0);
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
