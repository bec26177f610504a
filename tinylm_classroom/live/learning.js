// A model that learns in a worker, so that its page stays usable: one core, in short slices between which it hears.

const SLICE_MS = 25, REPORT_MS = 120;
const EVERY = 1.03; // a point of the curve is the mean loss of the updates that add so much to the tokens before
const LOOK_UPDATES = 128, EACH = 16; // between two looks, from there on; before after each of the first, then at 32 and 64
const SLOW_UPDATES = 64, HALF = 8; // after each of these a rest, so that the beginning is seen; one of half the length after so many
const WARMTH = 0.8, SHOWN = 14; // the temperature of what it writes; the tokens of which attention is shown
// The largest rates: of the matrices in the blocks, and of all else.
const RATES = { muon: [1e-2, 3e-2], adamw: [4e-3, 1e-2] };
const SOUND = { causal: true, residual: true, norm: true, shifted: true, optimizer: "muon", rate: 1, batch: 4 };

/** A run. source: see lessons.js. settings: those of SOUND that differ; total: tokens after which the rates are 0.
 * All random numbers come from the seed, and rates fall with tokens, so a seed is a run: on a slower machine it takes longer. */
function newRun(source, settings, seed, total, allowSimd) {
  const chance = new Generator(seed), random = () => chance.next(), now = { ...SOUND, ...settings };
  const { causal, residual, norm } = now;
  const model = learner({ V: source.V, maxRows: source.most * 4, maxT: source.most, random, how: { causal, residual, norm }, allowSimd });
  const shown = source.heldOut[0].slice(0, SHOWN);
  let tokens = 0, updates = 0, sum = 0, weight = 0, next = 0;

  function update() {
    const [matrixRate, tableRate] = RATES[now.optimizer].map((rate) => now.rate * rate * Math.max(0, 1 - tokens / total));
    const texts = Array.from({ length: now.batch }, () => source.draw(random));
    const { loss, n } = model.update(texts, { matrixRate, tableRate, isMuon: now.optimizer === "muon", isShifted: now.shifted });
    [tokens, updates, sum, weight] = [tokens + n, updates + 1, sum + loss * n, weight + n];
    if (tokens < next && Number.isFinite(loss)) return null;
    const point = { tokens, updates, loss: sum / weight };
    [sum, weight, next] = [0, 0, tokens * EVERY];
    return point;
  }
  function write(number = updates + 1) { // with draws of its own, which do not touch those of the training
    // one that repeats is seen to do so only after words that it is given
    const ids = now.shifted && source.isStory ? [source.end] : shown.slice(0, now.shifted ? 1 : 3), draws = new Generator(number);
    while (ids.length < source.most - 8) {
      const id = draw(nextTokenProbs(model.read(ids), { temperature: WARMTH }).probs, draws);
      ids.push(id);
      if (id === source.end) break;
    }
    return ids.map((id) => source.tokens[id]);
  }
  const likeliest = (logits) => logits.indexOf(logits.reduce((most, each) => Math.max(most, each)));
  function remembered() { // [kind, fraction of the words with one possible choice that it predicts]
    const found = {};
    source.told.forEach((places, n) => {
      const ids = source.heldOut[n], logits = model.readAll(ids.slice(0, -1));
      for (const [i, kind] of places) (found[kind] ??= []).push(Number(likeliest(logits[i - 1]) === ids[i]));
    });
    return Object.entries(found).map(([kind, rights]) => [kind, rights.reduce((a, b) => a + b) / rights.length]);
  }
  return {
    model, source, update, write, now,
    get tokens() { return tokens; },
    get updates() { return updates; },
    get total() { return total; },
    extend(more) { total = more; },
    set(changes) {
      Object.assign(now, changes);
      for (const part of ["causal", "residual", "norm"]) model.how[part] = now[part];
    },
    looksAt: () => updates <= EACH || (updates < LOOK_UPDATES ? Number.isInteger(Math.log2(updates)) : updates % LOOK_UPDATES === 0),
    look: () => ({ updates, tokens, text: write(), shown: shown.map((id) => source.tokens[id]), attention: model.attention(shown), remembered: remembered() }),
    heldOut: () => model.evaluate(source.heldOut),
  };
}

/** What the worker runs. It hears { do, ... }: start, go, pause, step, set, extend, keep; and says { is, ... }. */
function serveLearning() {
  let run = null, isGoing = false, isBusy = false, seconds = 0, points = [], said = 0, rest = 0;
  const say = (is, facts, moved = []) => globalThis.postMessage({ is, ...facts }, moved);

  function report(state) {
    say("report", { state, points, tokens: run.tokens, updates: run.updates, total: run.total, seconds });
    [points, said] = [[], performance.now()];
  }
  function look() {
    const found = run.look();
    say("look", { ...found, heldOut: run.source.isStory ? null : run.heldOut() });
  }
  function once() { // returns whether the loss is a number
    const start = performance.now(), point = run.update();
    seconds += (performance.now() - start) / 1000;
    if (point) points.push(point);
    if (run.looksAt()) look();
    return !point || Number.isFinite(point.loss);
  }
  async function go() {
    if (isBusy) return;
    isBusy = true;
    for (let end = 0; isGoing && run;) {
      if (performance.now() > end) {
        if (performance.now() - said > REPORT_MS) report("learning");
        await turn();
        end = performance.now() + SLICE_MS;
        continue;
      }
      if (run.tokens >= run.total) { isGoing = false; look(); report("finished"); }
      else if (!once()) { isGoing = false; report("broken"); }
      else if (rest && run.updates < SLOW_UPDATES) {
        report("learning");
        await new Promise((done) => { setTimeout(done, rest / (1 + run.updates / HALF)); });
      }
    }
    isBusy = false;
  }
  const hears = {
    start({ rules, entropies, text, settings, seed, total, allowSimd = true, isGoing: goes = true, restMs = 0 }) {
      const source = text === undefined ? storiesOf(rules, entropies) : textOf(text);
      run = newRun(source, settings, seed, total ?? TOTALS[Number(allowSimd && hasSimd())], allowSimd);
      [seconds, points, isGoing, rest] = [0, [], goes, restMs];
      const { V, levels, tokenizer } = source;
      say("begun", { V, levels, unit: { words: "word", chars: "character", bytes: "byte" }[tokenizer.kind], isSimd: run.model.isSimd, total: run.total, tokens: source.tokens });
      look();
      report(goes ? "learning" : "paused");
      go();
    },
    go() { isGoing = Boolean(run) && run.tokens < run.total; go(); },
    pause() { isGoing = false; if (run) report("paused"); },
    step() { isGoing = false; once(); if (!run.looksAt()) look(); report("paused"); },
    set({ changes }) { run?.set(changes); },
    extend() { run.extend(2 * run.total); isGoing = true; go(); },
    measure() { say("measured", { loss: run.heldOut(), tokens: run.tokens, seconds }); },
    keep() { say("kept", { ...kept(run.model, run.source), updates: run.updates, tokens: run.tokens }); },
    write({ n }) { say("written", { texts: Array.from({ length: n }, (_, i) => run.write(i + 1).join("")) }); },
  };
  globalThis.onmessage = ({ data }) => {
    try {
      hears[data.do](data);
    } catch ({ message }) {
      say("error", { message });
    }
  };
}
const TOTALS = [6.5e5, 3.6e6]; // tokens of a run of about a minute, without and with SIMD
const hasSimd = () => typeof WebAssembly === "object" && simdArithmetic(new WebAssembly.Memory({ initial: 1 })) !== null;

/** Resolves when messages that wait have had their turn. */
function turn() {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => { port1.close(); resolve(); };
    port2.postMessage(null);
  });
}

/** A worker that learns: { ask(message), close() }. hear: takes what it says. Throws where a page may start no worker. */
function startLearning(hear) {
  const address = URL.createObjectURL(new Blob([`(${learning})().serveLearning()`], { type: "text/javascript" }));
  const worker = new Worker(address);
  worker.onmessage = ({ data }) => {
    URL.revokeObjectURL(address);
    hear(data);
  };
  worker.onerror = (event) => {
    event.preventDefault();
    hear({ is: "error", message: `The worker failed: ${event.message}` });
  };
  return { ask: (message) => worker.postMessage(message), close: () => worker.terminate() };
}
