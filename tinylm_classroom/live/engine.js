// The library's model in JavaScript: one token at a time, a batch of one, with the keys and values of the past kept.
// The letters of shapes are the library's: C d_model, H heads, G key-value heads, D d_head, F d_ff, V vocabulary.
// A matrix is one Float32Array, row after row. Sums are in double precision, like all arithmetic of JavaScript.

/** y = W x, four rows at a time: a number of x is read once for four products, which is 1.7 times as fast (measured).
 * weight (out, in), x (in). Returns (out). */
function linear(weight, x) {
  const n = x.length, out = weight.length / n, y = new Float32Array(out);
  let row = 0;
  for (; row + 3 < out; row += 4) {
    const first = row * n, second = first + n, third = second + n, fourth = third + n;
    let a = 0, b = 0, c = 0, d = 0;
    for (let i = 0; i < n; i++) {
      a += weight[first + i] * x[i];
      b += weight[second + i] * x[i];
      c += weight[third + i] * x[i];
      d += weight[fourth + i] * x[i];
    }
    y[row] = a; y[row + 1] = b; y[row + 2] = c; y[row + 3] = d;
  }
  for (; row < out; row++) y[row] = dot(weight, row * n, x, 0, n);
  return y;
}

/** The dot product of n numbers of a, from i on, and n numbers of b, from j on. */
function dot(a, i, b, j, n) {
  let sum = 0;
  for (let at = 0; at < n; at++) sum += a[i + at] * b[j + at];
  return sum;
}

/** The sum of two vectors. */
function add(x, y) {
  return x.map((value, i) => value + y[i]);
}

/** RMSNorm: divide by the root mean square, multiply by the gain. x (n) or heads of n numbers each, gain (n). */
function rmsNorm(x, gain, eps) {
  const n = gain.length, y = new Float32Array(x.length);
  for (let at = 0; at < x.length; at += n) {
    const scale = 1 / Math.sqrt(dot(x, at, x, at, n) / n + eps);
    for (let i = 0; i < n; i++) y[at + i] = x[at + i] * scale * gain[i];
  }
  return y;
}

/** Rotate each pair of numbers of all heads, in place, by position * speed. x (H, D), speeds (D/2), radians. */
function rotate(x, position, speeds, layout) {
  const D = 2 * speeds.length, [step, apart] = ROPE_LAYOUTS[layout](D);
  speeds.forEach((speed, pair) => {
    const cos = Math.cos(position * speed), sin = Math.sin(position * speed);
    for (let i = step * pair; i < x.length; i += D) {
      const a = x[i], b = x[i + apart];
      x[i] = a * cos - b * sin;
      x[i + apart] = b * cos + a * sin;
    }
  });
  return x;
}

// From one pair to the next, and from the first number of a pair to the second.
const ROPE_LAYOUTS = { halves: (D) => [1, D / 2], interleaved: () => [2, 1] };

/** The error function as a series of equal signs. Source: Abramowitz and Stegun 1964, equation 7.1.6. */
function erf(x) {
  if (Math.abs(x) > 6) return Math.sign(x); // 1 - erf(6) is 2e-17: nothing in double precision
  let term = 2 / Math.sqrt(Math.PI) * x * Math.exp(-x * x), sum = term;
  for (let n = 1; Math.abs(term) > 1e-17; n++) {
    term *= 2 * x * x / (2 * n + 1);
    sum += term;
  }
  return sum;
}

const ACTIVATIONS = {
  swiglu: (x) => x / (1 + Math.exp(-x)), // silu
  geglu: (x) => x * (1 + erf(x / Math.SQRT2)) / 2, // gelu
};

/** The numbers of a base64 text of halves. A single has three bits more for the exponent, so 2^112 is missing. */
function unpackHalves(text) {
  const bytes = atob(text), bits = new Uint32Array(bytes.length / 2), values = new Float32Array(bits.buffer);
  for (let i = 0; i < bits.length; i++) {
    const half = bytes.charCodeAt(2 * i) | bytes.charCodeAt(2 * i + 1) << 8;
    bits[i] = (half & 0x8000) << 16 | (half & 0x7fff) << 13;
    values[i] *= 2 ** 112;
  }
  return values;
}

const isBelow = (n, value) => Number.isInteger(value) && 0 <= value && value < n;
// Whether a model of a config can make a change of each kind. They mean what they mean in the library's `intervene`.
const CHANGES = {
  silence: ([head], { n_heads: H }) => isBelow(H, head),
  means: ([head, rows], { n_heads: H, d_head: D }) => isBelow(H, head) && rows?.length > 0 && rows.every((row) => row.length === D),
  forbid: ([head, query, key], { n_heads: H, max_seq_len }) => isBelow(H, head ?? 0) && isBelow(max_seq_len, query) && isBelow(query + 1, key),
  stop: ([part]) => ["attention", "ffn"].includes(part),
  write: ([unit, id], { d_ff: F, vocab_size: V }) => isBelow(F, unit) && isBelow(V, id),
};

/** A model that reads token after token and keeps what it computed. record: see `live_record` in record.py. */
class Model {
  constructor({ config, speeds, weights }) {
    const { vocab_size: V, d_model: C, n_layers, n_heads: H, n_kv_heads: G, d_head: D, d_ff: F, qk_norm } = config;
    const all = unpackHalves(weights);
    let used = 0;
    const take = (n) => all.subarray(used, used += n); // in the order of the library's state_dict
    this.embed = take(V * C);
    this.blocks = Array.from({ length: n_layers }, () => ({
      attn_norm: take(C),
      q_proj: take(H * D * C), k_proj: take(G * D * C), v_proj: take(G * D * C),
      q_norm: qk_norm && take(D), k_norm: qk_norm && take(D),
      o_proj: take(C * H * D),
      ffn_norm: take(C),
      gate_proj: take(F * C), up_proj: take(F * C), down_proj: take(C * F),
    }));
    this.final_norm = take(C);
    this.lm_head = config.tie_embeddings ? this.embed : take(V * C);
    if (used !== all.length) throw new Error(`The model needs ${used} weights, and its record has ${all.length}.`);
    Object.assign(this, { config, speeds });
    const lists = (n) => Array.from({ length: n }, () => []);
    this.ids = []; // all tokens that were read; of each there is one row in the lists below
    this.stream = lists(n_layers + 1); // [place][row] (C): after the embedding, then after each block
    this.queries = lists(n_layers); // [layer][row] (H*D), after norm and rotation
    this.keys = lists(n_layers); // [layer][row] (G*D), likewise
    this.values = lists(n_layers); // [layer][row] (G*D)
    this.change();
  }

  /** Read with these changes, { kind: [[layer, ...]] }, from now on; default none. Others than before: all tokens are forgotten. */
  change(changes = {}) {
    const text = JSON.stringify(changes), replaced = new Set(), { n_layers: L, n_heads: H, d_ff: F } = this.config;
    if (text === this.changed) return;
    const parts = `layers 0 to ${L - 1}, heads 0 to ${H - 1}, units 0 to ${F - 1}, the parts attention and ffn, and no word looks ahead`;
    for (const [kind, all] of Object.entries(changes)) for (const [layer, ...change] of all) {
      const named = `${kind} ${[layer, ...change].filter((each) => !Array.isArray(each)).map(String).join(" ")}`, one = [kind.replace("means", "silence"), layer, change[0]].join();
      if (!isBelow(L, layer) || !CHANGES[kind]?.(change, this.config)) throw new Error(`The model cannot make the change ${named}: it has ${parts}.`);
      if (/silence|write/.test(one) && replaced.size === replaced.add(one).size) throw new Error(`The change ${named} is the second one of its kind there.`);
    }
    this.cut(0);
    Object.assign(this, { changed: text, changes: structuredClone(changes) });
  }

  /** The changes of one kind in a layer, without the layer. */
  changesIn(layer, kind) {
    return (this.changes[kind] ?? []).flatMap(([at, ...change]) => (at === layer ? [change] : []));
  }

  /** Forget all tokens after the first `length`: their rows are overwritten by those of the next tokens. */
  cut(length) {
    this.ids.length = Math.min(this.ids.length, length);
  }

  /** Read one more token. Returns the logits (V) for the next one. */
  read(id) {
    const { vocab_size: V, max_seq_len, d_model: C, n_layers, norm_eps } = this.config, at = this.ids.length;
    if (!(Number.isInteger(id) && 0 <= id && id < V)) throw new Error(`Token id ${id} is outside 0..${V - 1}.`);
    if (at >= max_seq_len) throw new Error(`The model reads at most ${max_seq_len} tokens. Cut some off first.`);
    let x = this.stream[0][at] = this.embed.slice(id * C, (id + 1) * C); // (C)
    this.blocks.forEach((block, layer) => {
      x = add(x, this.attend(layer, rmsNorm(x, block.attn_norm, norm_eps), at)); // (C)
      x = add(x, this.feedForward(layer, rmsNorm(x, block.ffn_norm, norm_eps))); // (C)
      this.stream[layer + 1][at] = x;
    });
    this.ids.push(id);
    return this.logits(n_layers, at);
  }

  /** What the attention of a layer adds to the stream of token `at`. x (C). Returns (C). */
  attend(layer, x, at) {
    const { norm_eps, rope_layout } = this.config, { q_proj, k_proj, v_proj, q_norm, k_norm } = this.blocks[layer];
    const rotated = (heads, gain) => rotate(gain ? rmsNorm(heads, gain, norm_eps) : heads, at, this.speeds, rope_layout);
    this.queries[layer][at] = rotated(linear(q_proj, x), q_norm);
    this.keys[layer][at] = rotated(linear(k_proj, x), k_norm);
    this.values[layer][at] = linear(v_proj, x);
    return this.added(layer, "attention", this.mixed(layer, at)); // (H*D) -> (C)
  }

  /** What the heads of a layer mix for token `at`, side by side. Returns (H*D). */
  mixed(layer, at) {
    const { n_heads: H, n_kv_heads: G, d_head: D } = this.config, mixed = new Float32Array(H * D);
    for (let head = 0; head < H; head++) {
      const shared = D * Math.floor(head * G / H); // where the numbers of this head's group begin
      this.attention(layer, head, at).forEach((weight, row) => {
        const value = this.values[layer][row];
        for (let i = 0; i < D; i++) mixed[head * D + i] += weight * value[shared + i];
      });
    }
    for (const [head] of this.changesIn(layer, "silence")) mixed.fill(0, head * D, (head + 1) * D);
    for (const [head, rows] of this.changesIn(layer, "means")) {
      if (at >= rows.length) throw new Error(`The means of head ${head} have ${rows.length} rows, too few for position ${at}.`);
      mixed.set(rows[at], head * D);
    }
    return mixed;
  }

  /** What a part of a block, "attention" or "ffn", adds to the stream. x: what its last matrix takes. Returns (C). */
  added(layer, part, x) {
    const isFfn = part === "ffn", weight = this.blocks[layer][isFfn ? "down_proj" : "o_proj"], y = linear(weight, x);
    const change = ([unit, id]) => y.forEach((_, i) => { y[i] += x[unit] * (this.lm_head[id * y.length + i] - weight[i * x.length + unit]); });
    if (isFfn) this.changesIn(layer, "write").forEach(change);
    return this.changesIn(layer, "stop").flat().includes(part) ? y.fill(0) : y;
  }

  /** The attention weights of token `row`, over the tokens up to itself. Returns (row + 1). */
  attention(layer, head, row) {
    const { n_heads: H, n_kv_heads: G, d_head: D } = this.config, shared = D * Math.floor(head * G / H);
    const query = this.queries[layer][row], keys = this.keys[layer];
    const scores = new Float32Array(row + 1).map((_, at) => dot(query, head * D, keys[at], shared, D) / Math.sqrt(D));
    for (const [one, at, key] of this.changesIn(layer, "forbid")) if (at === row && (one ?? head) === head) scores[key] = -Infinity;
    const top = scores.reduce((a, b) => Math.max(a, b)), e = scores.map((score) => Math.exp(score - top));
    const sum = e.reduce((a, b) => a + b);
    return e.map((each) => (top === -Infinity ? 0 : each / sum)); // 0 where no key is left
  }

  /** down(activation(gate(x)) * up(x)). x (C). Returns (C). */
  feedForward(layer, x) {
    const { gate_proj, up_proj } = this.blocks[layer], activation = ACTIVATIONS[this.config.ffn];
    const up = linear(up_proj, x), h = linear(gate_proj, x).map((gate, i) => activation(gate) * up[i]); // (C) -> (F)
    return this.added(layer, "ffn", h); // (F) -> (C)
  }

  /** What final norm and head make of the stream at a depth, 0 for the embedding. Returns (V). */
  logits(place, row) {
    const x = rmsNorm(this.stream[place][row], this.final_norm, this.config.norm_eps);
    return linear(this.lm_head, x); // (C) -> (V)
  }
}
