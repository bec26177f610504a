// A model that answers while its page stays usable: in a worker, or in short slices of time where a page may have none.

const SLICE = 10; // milliseconds of work between two pauses

/** Open a record. Resolves to a `live`:
 *
 * live.read(ids, wants) reads ids, or the last max_seq_len of them; what was read before of the same beginning is kept.
 * Resolves to { logits } of the next token, a Float32Array (V), and to what is wanted, as arrays of Float32Arrays:
 *   wants.attention: attention [layer][head][row], the weights (row + 1).
 *   wants.layers: layers [place], the logits (V) that final norm and head make of the last row of the stream there.
 *   wants.film: film, everything that moves in the forward pass, by the names of `film`.
 *   wants.parts: stream [place][row] (C), queries [layer][head][row] (D), and keys and values likewise, of G heads.
 *   wants.rows: attention and parts of so many rows, the last ones; default all. While a text is written, 1 is quick.
 *   wants.changes: what is changed of the model for this read, as `Model.change` takes it. Default nothing.
 * A newer read replaces older ones of the same asker, wants.by (any text): they reject with an Error whose name is
 * "Replaced". Different askers are answered one after the other.
 *
 * live.close() ends it, and what is not answered yet rejects in the same way.
 * Both reject if something cannot be read: a damaged record, no id at all, an id that the model does not have. */
async function open(record) {
  return inWorker(record).catch(() => inSlices(record));
}

/** Read ids, a generator that stops after each piece of work. Returns what `live.read` resolves to. */
function* answer(model, ids, { attention, parts, layers, film: isFilm, changes, rows: n_rows = ids.length }) {
  const { n_layers, n_heads: H, n_kv_heads: G, d_head: D } = model.config, last = ids.length - 1;
  if (last < 0) throw new Error("There is nothing to read. Give at least one token id.");
  model.change(changes);
  const other = ids.findIndex((id, i) => id !== model.ids[i]);
  model.cut(other < 0 ? ids.length : other);
  let logits;
  while (model.ids.length < ids.length) {
    logits = model.read(ids[model.ids.length]);
    yield;
  }
  const found = { logits: logits ?? model.logits(n_layers, last) };
  if (isFilm) found.film = film(model);
  if (layers) found.layers = model.stream.map((_, place) => model.logits(place, last));
  const wanted = [...ids.keys()].slice(-n_rows);
  if (attention) {
    found.attention = model.blocks.map(() => []);
    for (let layer = 0; layer < n_layers; layer++) {
      for (let head = 0; head < H; head++) {
        found.attention[layer].push(wanted.map((row) => model.attention(layer, head, row)));
        yield;
      }
    }
  }
  if (parts) {
    const rows = (all, from, to) => wanted.map((row) => all[row].slice(from, to));
    const heads = (all, n) => Array.from({ length: n }, (_, head) => rows(all, head * D, (head + 1) * D));
    found.queries = model.queries.map((all) => heads(all, H));
    found.keys = model.keys.map((all) => heads(all, G));
    found.values = model.values.map((all) => heads(all, G));
    found.stream = model.stream.map((all) => rows(all));
  }
  return found;
}

/** A `live` that computes right here. */
function inSlices(record) {
  const model = new Model(record), newest = new Map(); // the number of the newest read for each wants.by
  let n_reads = 0, before = Promise.resolve(), end = 0, isOpen = true;

  async function run(pieces, isWanted) {
    for (;;) {
      if (performance.now() > end) {
        await pause();
        end = performance.now() + SLICE;
      }
      if (!isWanted()) throw replaced();
      const { done, value } = pieces.next();
      if (done) return value;
    }
  }

  async function read(ids, wants = {}) {
    const number = ++n_reads, pieces = answer(model, Array.from(ids).slice(-model.config.max_seq_len), wants);
    newest.set(wants.by, number);
    const start = () => run(pieces, () => isOpen && newest.get(wants.by) === number);
    before = before.then(start, start);
    return before;
  }

  return { read, close: () => { isOpen = false; } };
}

/** A `live` that asks a worker. Rejects where there can be none. */
async function inWorker(record) {
  const address = URL.createObjectURL(new Blob([`(${engine})().serve()`], { type: "text/javascript" }));
  const worker = new Worker(address), waiting = new Map();
  let n_asked = 0, isOpen = true;

  function ask(message) {
    return new Promise((resolve, reject) => {
      if (!isOpen) throw replaced();
      waiting.set(++n_asked, { resolve, reject });
      worker.postMessage({ number: n_asked, ...message });
    });
  }
  function close(error = replaced()) {
    isOpen = false;
    worker.terminate();
    waiting.forEach(({ reject }) => reject(error));
  }
  worker.onmessage = ({ data: { number, found, error } }) => {
    const { resolve, reject } = waiting.get(number);
    waiting.delete(number);
    if (error) reject(named(error)); else resolve(found);
  };
  worker.onerror = (event) => {
    event.preventDefault();
    close(new Error(`The worker failed: ${event.message}`));
  };
  await ask({ record }).finally(() => URL.revokeObjectURL(address));
  return { read: async (ids, wants = {}) => ask({ ids: Array.from(ids), wants }), close: () => close() };
}

/** What the worker runs: the first message brings the record, each other one a read. */
function serve() {
  let live;
  globalThis.onmessage = async ({ data: { number, record, ids, wants } }) => {
    try {
      if (record) live = inSlices(record);
      globalThis.postMessage({ number, found: record ? null : await live.read(ids, wants) });
    } catch ({ name, message }) {
      globalThis.postMessage({ number, error: { name, message } });
    }
  };
}

/** Resolves when clicks, drawing and messages that wait have had their turn. A timer would take 4 ms, or a second. */
function pause() {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => { port1.close(); resolve(); };
    port2.postMessage(null);
  });
}

function named({ name, message }) {
  return Object.assign(new Error(message), { name });
}

function replaced() {
  return named({ name: "Replaced", message: "A newer read has replaced this one, or the model was closed." });
}
