// The walk through a model: a tree of steps with shapes, sizes and what flows there, and one token followed through.

const FLOW = `
.tinylm-view.shape-flow .say { min-height: 1.35em; margin: 0 0 4px; padding: 6px 0 8px; position: sticky; top: 0; z-index: 2; background: var(--paper) }
.tinylm-view.shape-flow .main { display: flex; flex-wrap: wrap; gap: 20px 28px; align-items: start }
.tinylm-view.shape-flow .walk { flex: 10 1 540px; min-width: 0 }
.tinylm-view.shape-flow .about { flex: 1 1 250px; min-width: 0; max-width: 640px; position: sticky; top: 52px }
.tinylm-view.shape-flow .row { display: grid; grid-template-columns: 24px minmax(150px, 1fr) 212px 124px 60px 60px; gap: 0 8px; padding-right: 8px; align-items: center; font-size: var(--type-label) }
.tinylm-view.shape-flow .head { color: var(--quiet); font-size: var(--type-small); padding-bottom: 4px; border-bottom: 1px solid var(--line) }
.tinylm-view.shape-flow .step { min-height: 37px; cursor: pointer; border-radius: 6px; }
.tinylm-view.shape-flow .step[hidden] { display: none }
.tinylm-view.shape-flow .step:hover { background: var(--soft) }
.tinylm-view.shape-flow .step[aria-selected="true"] { background: color-mix(in srgb, var(--accent) 13%, transparent); box-shadow: inset 0 0 0 2px var(--accent) }
.tinylm-view.shape-flow .step:focus-visible { outline: 3px solid var(--focus); outline-offset: -1px }
.tinylm-view.shape-flow .rail { align-self: stretch; position: relative }
.tinylm-view.shape-flow .rail::before { content: ""; position: absolute; left: 10px; width: 4px; top: 0; bottom: 0; background: var(--part-stream) }
.tinylm-view.shape-flow .first .rail::before, .tinylm-view.shape-flow .last .rail::before { background: none }
.tinylm-view.shape-flow .stream .rail::after { content: ""; position: absolute; box-sizing: border-box; left: 3px; top: calc(50% - 9px); width: 18px; height: 18px; border-radius: 50%;
  background: var(--paper); border: 4px solid var(--part-stream) }
.tinylm-view.shape-flow .added .rail::after { content: "+"; left: 2px; top: calc(50% - 10px); width: 20px; height: 20px; border: 0; background: var(--part-stream);
  color: var(--paper); font: 700 17px/19px var(--font); text-align: center }
.tinylm-view.shape-flow .name { padding-left: calc(var(--depth) * 20px); display: flex; gap: 5px; align-items: center; line-height: 1.2; min-width: 0 }
.tinylm-view.shape-flow .twist { flex: 0 0 16px; color: var(--accent); font-size: 13px; text-align: center }
.tinylm-view.shape-flow .times { color: var(--quiet); white-space: nowrap }
.tinylm-view.shape-flow .opens .name { font-weight: 700 }
.tinylm-view.shape-flow .shape { font: var(--type-small)/1.2 var(--mono); letter-spacing: -.03em; color: var(--quiet) }
.tinylm-view.shape-flow .shape b { font-weight: 700 }
.tinylm-view.shape-flow .number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; font-size: var(--type-small) }
.tinylm-view.shape-flow svg { display: block; overflow: visible }
.tinylm-view.shape-flow .step svg { width: 124px; height: 31px }
.tinylm-view.shape-flow .big { display: grid; grid-template-columns: max-content 1fr; gap: 0 10px; margin: 4px 0 6px }
.tinylm-view.shape-flow .big svg { width: 100%; height: calc(var(--rows) * 19px) }
.tinylm-view.shape-flow .big span { height: 19px; font-size: var(--type-small); line-height: 19px; color: var(--quiet); text-align: right; cursor: pointer }
.tinylm-view.shape-flow .big .on { color: var(--ink); font-weight: 700 }
.tinylm-view.shape-flow .chosen { fill: none; stroke: var(--focus); stroke-width: 2.5px; vector-effect: non-scaling-stroke }
.tinylm-view.shape-flow .masked { fill: none; stroke: var(--quiet); stroke-width: 1px; stroke-opacity: .55; vector-effect: non-scaling-stroke }
.tinylm-view.shape-flow .step .chosen { stroke-width: 1.5px }
.tinylm-view.shape-flow .heading { font-weight: 700; margin: 0 0 6px; font-size: 17px }
.tinylm-view.shape-flow dl { display: grid; grid-template-columns: max-content 1fr; gap: 3px 12px; margin: 0 0 12px; font-size: var(--type-label) }
.tinylm-view.shape-flow dt { color: var(--quiet) } .tinylm-view.shape-flow dd { margin: 0; font-variant-numeric: tabular-nums; min-width: 0; overflow-wrap: anywhere }
.tinylm-view.shape-flow .note, .tinylm-view.shape-flow .legend { color: var(--quiet); font-size: var(--type-small); margin: 0 0 8px }
.tinylm-view.shape-flow .legend { display: flex; flex-wrap: wrap; gap: 2px 18px; margin: 14px 0 0 }
.tinylm-view.shape-flow .wrong { color: var(--bad); margin: 0; max-height: 6em; overflow: auto; overflow-wrap: anywhere }
.tinylm-view.shape-flow .wrong:empty { position: absolute }
.tinylm-view.shape-flow .field { flex: 1 1 100% }
@container (max-width: 800px) {
  .tinylm-view.shape-flow .row { grid-template-columns: 24px minmax(128px, 1fr) 204px 70px 58px; font-size: 14px } .tinylm-view.shape-flow .row > :last-child { display: none }
  .tinylm-view.shape-flow .step svg { width: 70px }
  .tinylm-view.shape-flow .name { padding-left: calc(var(--depth) * 12px) }
}
@container (max-width: 560px) {
  .tinylm-view.shape-flow .row { grid-template-columns: 24px minmax(0, 1fr) 138px; padding-right: 0 } .tinylm-view.shape-flow .row > :nth-child(n + 4) { display: none }
  .tinylm-view.shape-flow .name { padding-left: calc(var(--depth) * 7px) }
  .tinylm-view.shape-flow .step .shape { font-size: 13px; padding: 2px 0 }
}
`;

const MOST_TOKENS = 12, MOST_HEADS = 4, MOST_COLUMNS = 24, COLUMNS_OF_A_HEAD = 6, FEW = 3; // as in shape_flow.py
const LEVELS = 8, MASKED = ".", ROOM = 0.3; // the frame of a row in a small picture is so much larger, so that it hides little
const colored = (axes) => [...axes].map((letter) => (/[A-Z]/.test(letter) ? make("b", { style: `color: var(--axis-${letter})` }, letter) : letter === "*" ? "·" : letter));
/** A shape, letters in their colours next to the numbers. */
const shaped = (axes, sizes) => ["(", ...axes.split(" ").flatMap((axis, i) => [...(i ? [", "] : []), ...colored(axis), /[A-Z]/.test(axis) ? `=${sizes[i]}` : ""]), ")"];
/** A number in at most four digits and a unit. */
const short = (n) => {
  const [unit, name] = [[1e12, " T"], [1e9, " B"], [1e6, " M"], [1e3, " K"]].find(([size]) => n >= size) ?? [1, ""];
  const x = n / unit;
  return unit === 1 ? String(n) : `${x.toFixed(x < 9.995 ? 2 : x < 99.95 ? 1 : 0)}${name}`;
};
const exact = (n) => n.toLocaleString("en-US");

/** What flows: a row for each token, one path for each shade, the chosen token framed. */
function picture({ cells, heads, columns }, token, room = 0) {
  const across = heads * columns, rows = cells.length / across;
  const gap = heads > 1 ? columns / 12 : 0, paths = {};
  [...cells].forEach((level, i) => {
    const x = i % across;
    const left = (x + Math.floor(x / columns) * gap).toFixed(2), top = Math.floor(i / across);
    (paths[level] ??= []).push(level === MASKED ? `M${left} ${top + 1}l1 -1` : `M${left} ${top}h1v1h-1z`);
  });
  const fill = (level) => {
    const much = level.charCodeAt(0) - 97 - LEVELS, hue = much < 0 ? "deep-negative" : "deep", middle = much < 0 ? "middle-negative" : "middle";
    const share = (Math.abs(much) / LEVELS) * 2;
    return share <= 1 ? `color-mix(in srgb, var(--${middle}) ${100 * share}%, var(--pale))` : `color-mix(in srgb, var(--${hue}) ${100 * (share - 1)}%, var(--${middle}))`;
  };
  const width = across + (heads - 1) * gap;
  return draw("svg", { viewBox: `0 0 ${width} ${rows}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    ...Object.entries(paths).map(([level, path]) => draw("path", { d: path.join(""), ...(level === MASKED ? { class: "masked" } : { style: `fill: ${fill(level)}` }) })),
    draw("rect", { class: "chosen", x: 0, width, y: token - room, height: 1 + 2 * room }));
}

function mount(el, model, state, ask) {
  const data = model.get("data"), { steps, tokens } = data;
  state.token = Math.min(state.token, Math.max(0, tokens.length - 1));
  const opens = steps.map((step, i) => steps[i + 1]?.depth > step.depth);
  const parent = steps.map((step, i) => steps.slice(0, i).findLastIndex((each) => each.depth < step.depth));
  const isOpen = (i) => state.open.includes(steps[i].name);
  const isSeen = (i) => parent[i] < 0 || (isOpen(parent[i]) && isSeen(parent[i]));
  let at = Math.max(0, steps.findIndex((step) => step.name === state.name));

  const say = make("p", { class: "say" }), live = make("p", { class: "unseen", role: "status" }), about = make("div", { class: "about" });
  const rows = steps.map((step, i) => {
    const times = step.depth === 0 && step.times > 1 ? make("span", { class: "times" }, `× ${step.times}`) : "";
    const kind = [step.stream && "stream", step.name.endsWith("_added") && "added", opens[i] && "opens", i === 0 && "first", i === steps.length - 1 && "last"];
    return make("div", {
      class: `row step ${kind.filter(Boolean).join(" ")}`, role: "treeitem", "aria-level": step.depth + 1, style: `--depth: ${step.depth}`,
      "data-step": step.name, "data-lm-suppress-shortcuts": "true",
      "aria-label": `${step.title}${step.times > 1 && step.depth === 0 ? `, ${step.times} times` : ""}, shape ${step.axes.split(" ").map((axis, n) => `${axis} ${step.shape[n]}`).join(", ")}, ${exact(step.parameters)} parameters, ${exact(step.flops)} FLOPs`,
      onclick: (event) => choose(i, opens[i] && (at === i || event.target.closest(".twist")) ? !isOpen(i) : undefined),
    },
    make("span", { class: "rail" }), make("span", { class: "name" }, make("span", { class: "twist" }), make("span", {}, step.title), times),
    make("span", { class: "shape" }, ...shaped(step.axes, step.shape)), make("span", {}, ...(step.cells ? [picture(step, state.token, ROOM)] : [])),
    make("span", { class: "number" }, step.parameters ? short(step.parameters) : ""), make("span", { class: "number" }, step.flops ? short(step.flops) : ""));
  });
  const walk = make("div", { role: "tree", "aria-label": "the steps of the model, from ids to logits" }, ...rows);

  function told() {
    const step = steps[at], who = tokens.length ? `**${tokens[state.token]}**` : "Each token";
    return step.says.replace("{t}", who).replace("{fact}", step.facts?.[state.token] ?? step.unread ?? "");
  }

  function show() {
    rows.forEach((row, i) => {
      row.hidden = !isSeen(i);
      row.tabIndex = i === at ? 0 : -1;
      row.setAttribute("aria-selected", String(i === at));
      if (opens[i]) row.setAttribute("aria-expanded", String(isOpen(i)));
      row.querySelector(".twist").textContent = opens[i] ? (isOpen(i) ? "▾" : "▸") : "";
      row.querySelector(".chosen")?.setAttribute("y", state.token - ROOM);
    });
    say.replaceChildren(...prose(told()));
    detail(steps[at]);
  }

  function detail(step) {
    const times = step.times > 1 && step.depth < 3 ? ` × ${step.times} blocks` : "";
    const facts = [["Shape", make("span", { class: "shape" }, ...shaped(step.axes, step.shape))]];
    if (step.weight) facts.push(["Weights", make("span", {}, make("span", { class: "shape" }, ...shaped(step.weight, step.matrix)), step.biases ? ` and ${exact(step.biases)} offsets` : "")]);
    if (step.parameters) facts.push(["Parameters", `${exact(step.parameters)}${times}`], ["In all", `${((100 * step.parameters * step.times) / data.parameters).toFixed(1)} % of the model`]);
    if (step.flops) facts.push(["FLOPs", `${exact(step.flops)}${times}`]);
    const seen = [];
    if (step.cells) {
      const width = step.shape.at(-1), kind = step.heads > 1 ? `the first ${step.columns} of ${width} numbers in ${step.heads} heads` : `the first ${step.columns} of ${width} numbers`;
      const labels = tokens.map((token, i) => make("span", { class: i === state.token ? "on" : "", onclick: () => follow(i) }, token));
      seen.push(make("div", { class: "big", style: `--rows: ${tokens.length}`, "aria-hidden": "true" }, make("div", { style: "display: grid" }, ...labels), picture(step, state.token)),
        make("p", { class: "note" }, `Each row a token: ${step.columns === width ? `all ${width} numbers${step.heads > 1 ? ` in ${step.heads} heads` : ""}` : kind}. Blue is above 0, orange below; the deepest is this picture's largest.${step.name === "masked" ? " Hatched may not be seen." : ""}`),
        make("p", { class: "note" }, ...prose(`**${tokens[state.token]}** begins with \`${step.first[state.token].replaceAll("-", "−")}\``)));
    }
    about.replaceChildren(make("p", { class: "heading" }, step.title), make("dl", {}, ...facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)])), ...seen);
  }

  function choose(i, open, focus = true) {
    at = i;
    state.name = steps[i].name;
    if (open !== undefined) state.open = open ? [...state.open, state.name] : state.open.filter((name) => name !== state.name);
    show();
    live.textContent = say.textContent;
    if (focus) rows[i].focus();
  }

  function follow(token) {
    state.token = token;
    view.querySelectorAll("input[name=token]").forEach((input, i) => { input.checked = i === token; });
    show();
    live.textContent = say.textContent;
  }

  walk.addEventListener("keydown", (event) => {
    const seen = rows.map((_, i) => i).filter(isSeen), place = seen.indexOf(at);
    const go = {
      ArrowDown: () => choose(seen[Math.min(place + 1, seen.length - 1)]),
      ArrowUp: () => choose(seen[Math.max(place - 1, 0)]),
      Home: () => choose(seen[0]),
      End: () => choose(seen.at(-1)),
      ArrowRight: () => opens[at] && (isOpen(at) ? choose(at + 1) : choose(at, true)),
      ArrowLeft: () => (opens[at] && isOpen(at) ? choose(at, false) : parent[at] >= 0 && choose(parent[at])),
      Enter: () => opens[at] && choose(at, !isOpen(at)),
    }[event.key];
    if (!go) return;
    event.preventDefault();
    event.stopPropagation();
    go();
  });

  const controls = [];
  if (tokens.length) controls.push(segments("Follow", "token", tokens.map((token, i) => [i, token]), state.token, follow));
  const { field } = state, isTyping = document.activeElement === field;
  if (state.text !== data.text) field.value = (state.text = data.text ?? "").trimStart(); // what is being typed outlives another answer
  const wrong = make("p", { class: "wrong", role: "alert" }, data.error ?? "");
  if (model.get("live")) {
    const asking = make("fieldset", { class: "needs-kernel" });
    if (data.layers > 1) asking.append(segments("Inside block", "layer", [...Array(Math.min(data.layers, 12)).keys()].map((i) => [i, String(i)]), data.layer, (layer) => ask({ text: data.text, layer })));
    asking.append(make("label", { class: "field" }, "Your own text", field, make("button", { type: "submit" }, "Walk")));
    controls.push(asking, wrong);
  }
  const view = frame(el, "The walk through the model", make("style", {}, FLOW), make("p", { class: "title" }, "What flows through the model?"),
    make("p", { class: "sub" }, `${exact(data.parameters)} parameters, ${exact(Math.round(data.flops / data.seq_len))} FLOPs per token in a text of ${exact(data.seq_len)}. ↑ ↓ walk, → opens, ← closes.`),
    ...(controls.length ? [make("div", { class: "bar" }, ...controls)] : []), say,
    make("div", { class: "main" }, make("div", { class: "walk" },
      make("div", { class: "row head", "aria-hidden": "true" }, make("span"), make("span", { style: "padding-left: 21px" }, "step"), make("span", {}, "shape"), make("span", {}, tokens.length ? "what flows" : ""), make("span", { class: "number" }, "params"), make("span", { class: "number" }, "FLOPs")), walk), about),
    make("p", { class: "legend" }, ...data.legend.map(([letter, words]) => make("span", {}, ...colored(letter), ` ${words}`))), live);
  view.classList.add("shape-flow");
  if (isTyping) field.focus();
  view.querySelector("form").addEventListener("submit", () => model.get("live") && ask({ typed: field.value, layer: data.layer }));
  show();
}

/** A picture of rows [token] (C), or of heads [head][token] (D), and each token's first numbers: `_seen` of shape_flow.py. */
function seen(flow) {
  const isHeads = Array.isArray(flow[0]), matrices = isHeads ? flow.slice(0, MOST_HEADS) : [flow], width = matrices[0][0].length;
  const columns = Math.min(width, isHeads && width !== matrices[0].length ? COLUMNS_OF_A_HEAD : isHeads ? width : MOST_COLUMNS);
  const heads = matrices.map((rows) => rows.map((row) => [...row.slice(0, columns)]));
  const top = heads.flat(2).reduce((most, x) => (Number.isFinite(x) ? Math.max(most, Math.abs(x)) : most), 1e-9);
  const letter = (x) => (Number.isFinite(x) ? String.fromCharCode(97 + LEVELS + Math.round((LEVELS * x) / top)) : MASKED);
  const number = (x) => (Number.isFinite(x) ? fixed(x, 2).replace("−", "-") : "−∞");
  return {
    cells: heads[0].flatMap((_, at) => heads.flatMap((rows) => rows[at].map(letter))).join(""), heads: heads.length, columns,
    first: heads[0].map((row) => row.slice(0, FEW).map(number).join(" ")),
  };
}

/** What the model of a page answers where there is no kernel, as `answer` of shape_flow.py: another text, the same steps. */
function answers({ data, begun, ids, read, readable }) {
  const isProduct = ({ name }) => ["scores", "mixed"].includes(name); // of queries and keys: their FLOPs grow with the square of T
  const products = data.steps.filter(isProduct).reduce((sum, { flops }) => sum + flops, 0);
  const squared = (step) => (isProduct(step) ? step.flops : ["attention", "block"].includes(step.name) ? products : 0);
  return async ({ typed, layer, text = begun(typed) }) => {
    const asked = ids(text, 2, MOST_TOKENS), T = asked.length, ratio = T / data.seq_len, tokens = asked.map(readable);
    const found = (await read(asked, { steps: layer })).steps, largest = (row) => row.reduce((best, x, at) => (x > row[best] ? at : best), 0);
    const percent = (x) => `${(100 * x).toFixed(0)} %`, later = (n) => (n > 1 ? `the ${n} that come later` : n ? "the one that comes later" : "what comes later, but nothing does");
    const facts = {
      ids: asked, embed: asked.map((id) => `row ${id}`), "rotation.q": [...asked.keys()], "rotation.k": [...asked.keys()],
      weights: found.weights[0].map((row) => `Head 0 gives ${percent(row[largest(row)])} to ${tokens[largest(row)]}.`),
      masked: asked.map((_, at) => later(T - 1 - at)),
      head: found.head.map((row) => {
        const best = largest(row), share = 1 / row.reduce((sum, x) => sum + Math.exp(x - row[best]), 0);
        return `Best guess for the next: “${readable(best)}”, ${percent(share)}.`;
      }),
    };
    const steps = data.steps.map((step) => {
      const flow = found[step.name], more = squared(step), axes = step.axes.split(" ");
      return {
        ...step, shape: step.shape.map((n, at) => ("TS".includes(axes[at]) ? T : n)), flops: Math.round((step.flops - more) * ratio + more * ratio ** 2),
        ...(facts[step.name] && { facts: facts[step.name] }), ...(flow && seen(flow)),
      };
    });
    const flops = steps.reduce((sum, step) => sum + (step.depth ? 0 : step.flops * step.times), 0);
    const legend = data.legend.map(([letter, words]) => [letter, "TS".includes(letter) ? words.replace(/\d+/, T) : words]);
    return { steps, layer, legend, tokens, seq_len: T, flops, text };
  };
}

export default {
  answers,
  initialize,
  render({ model, el }) {
    const field = make("input", { type: "text", autocomplete: "off" });
    const state = { name: "embed", open: ["block"], token: Math.max(0, model.get("data").tokens.length - 1), field };
    const ask = asker({ model, el }), redraw = () => mount(el, model, state, ask);
    redraw();
    model.on("change:data", redraw);
    return () => model.off("change:data", redraw);
  },
};
