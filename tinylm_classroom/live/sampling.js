// From logits to the probabilities to sample from, one draw from them, and the random numbers behind it.

/**
 * The library's next_token_probs: the options apply in its order, each to the result of the one before.
 * probs: the probability of each id, exactly 0 where an option excludes it. warm: the probabilities after the temperature alone.
 * order: the ids from the most probable to the least, the lower id first among equals. kept: how many ids each option left.
 */
function nextTokenProbs(logits, { temperature = 1, top_k = null, top_p = null, min_p = null } = {}) {
  const values = Array.from(logits), largest = values.reduce((a, b) => Math.max(a, b), -Infinity), kept = {};
  if (!Number.isFinite(largest)) throw new Error(`the largest logit is ${largest}; the weights must be finite numbers`);
  const normalised = (weights) => {
    const total = weights.reduce((a, b) => a + b);
    return weights.map((weight) => weight / total);
  };
  const ranked = (numbers) => [...numbers.keys()].sort((a, b) => numbers[b] - numbers[a]); // a stable sort
  if (temperature === 0) {
    const order = ranked(values), probs = values.map((_, id) => Number(id === order[0]));
    return { probs, warm: probs, order, kept: { temperature: 1 } };
  }
  const warm = normalised(values.map((x) => Math.exp((x - largest) / temperature))), order = ranked(warm);
  let left = order.map((id) => warm[id]);
  const keep = (name, fits) => {
    left = normalised(left.map((p, rank) => (fits(p, rank) ? p : 0)));
    kept[name] = left.filter((p) => p > 0).length;
  };
  if (top_k !== null) keep("top_k", (_, rank) => rank < top_k);
  if (top_p !== null && top_p < 1) {
    let before = 0;
    keep("top_p", (p) => {
      const fits = before < top_p;
      before += p;
      return fits;
    });
  }
  if (min_p !== null) {
    const least = min_p * left[0];
    keep("min_p", (p) => p >= least);
  }
  const probs = new Array(values.length);
  order.forEach((id, rank) => { probs[id] = left[rank]; });
  return { probs, warm, order, kept };
}

/** Draws an id with its probability. generator: what `next()` returns is uniform in [0, 1). */
function draw(probs, generator) {
  let left = generator.next() * probs.reduce((a, b) => a + b);
  const id = probs.findIndex((p) => (left -= p) < 0);
  return id < 0 ? probs.findLastIndex((p) => p > 0) : id; // rounding may leave a little over
}

/**
 * Random numbers from a seed, a whole number from 0 to 2^53 - 1.
 * Source: sfc32 of Chris Doty-Humphrey's PractRand, with its constants and its way to seed; it passes PractRand's tests.
 */
class Generator {
  constructor(seed) {
    if (!Number.isSafeInteger(seed) || seed < 0) throw new Error(`the seed must be a whole number from 0 to 2^53 - 1, got ${seed}`);
    this.state = Uint32Array.of(0, seed, Math.floor(seed / 2 ** 32), 1); // each number modulo 2^32
    for (let i = 0; i < 12; i++) this.next();
  }

  /** The next number, a multiple of 2^-32 in [0, 1). */
  next() {
    const [a, b, c, counter] = this.state, word = (a + b + counter) >>> 0;
    this.state.set([b ^ (b >>> 9), c + (c << 3), ((c << 21) | (c >>> 11)) + word, counter + 1]);
    return word / 2 ** 32;
  }
}
