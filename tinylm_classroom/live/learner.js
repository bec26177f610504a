// A Transformer that learns in a page: forward, backward and the optimizers by hand, without a dependency, on one core.
// Letters: C d_model, H heads of D, F d_ff, V vocabulary (Vp: rounded up to a multiple of 8), T tokens of a text,
// R rows: the texts of a batch lie one after the other, each rounded up to a multiple of 8 rows. Matrices are (out, in).
// All numbers are in one Float32Array, `M`, and an "array" is the index of its first number there, so that one product
// serves them all: in WebAssembly with four numbers per instruction where the page may have it, otherwise in plain JavaScript.

const up8 = (n) => Math.ceil(n / 8) * 8;
// exp(x) = 2^n e^r, n the whole number next to x / ln 2. The polynomial of e^r is that of `expf` in Moshier's Cephes.
const EXP = [1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1];
const PART = 64; // rows whose gradients are summed before they are added to those of others: sums in fp32 are nearer then
const BLOCK = 32; // queries that are computed together; keys after the last of them are left out

/** The arithmetic on M in plain JavaScript, what `simdArithmetic` does, too:
 * product(c, ldc, a, ar, ac, b, ldb, m, n, k, adds): c (m, n) = a (m, k) b (k, n), or c += with adds. The number a[i, p]
 *   is M[a + i * ar + p * ac], so a may be transposed; the rows of b and c are ldb and ldc apart. m is a multiple of 4, n of 8.
 * exps(at, n, scale, shift): each of n numbers x becomes exp(scale x - shift); returns their sum. n is a multiple of 4. */
function plainArithmetic(M) {
  function product(c, ldc, a, ar, ac, b, ldb, m, n, k, adds) {
    for (let i = 0; i < m; i += 4) {
      for (let j = 0; j < n; j += 4) { // 16 sums stay in registers
        let c00 = 0, c01 = 0, c02 = 0, c03 = 0, c10 = 0, c11 = 0, c12 = 0, c13 = 0;
        let c20 = 0, c21 = 0, c22 = 0, c23 = 0, c30 = 0, c31 = 0, c32 = 0, c33 = 0;
        for (let p = 0, x = a + i * ar, y = b + j; p < k; p++, x += ac, y += ldb) {
          const y0 = M[y], y1 = M[y + 1], y2 = M[y + 2], y3 = M[y + 3];
          const x0 = M[x], x1 = M[x + ar], x2 = M[x + 2 * ar], x3 = M[x + 3 * ar];
          c00 += x0 * y0; c01 += x0 * y1; c02 += x0 * y2; c03 += x0 * y3;
          c10 += x1 * y0; c11 += x1 * y1; c12 += x1 * y2; c13 += x1 * y3;
          c20 += x2 * y0; c21 += x2 * y1; c22 += x2 * y2; c23 += x2 * y3;
          c30 += x3 * y0; c31 += x3 * y1; c32 += x3 * y2; c33 += x3 * y3;
        }
        const z0 = c + i * ldc + j, z1 = z0 + ldc, z2 = z1 + ldc, z3 = z2 + ldc;
        if (adds) {
          M[z0] += c00; M[z0 + 1] += c01; M[z0 + 2] += c02; M[z0 + 3] += c03; M[z1] += c10; M[z1 + 1] += c11; M[z1 + 2] += c12; M[z1 + 3] += c13;
          M[z2] += c20; M[z2 + 1] += c21; M[z2 + 2] += c22; M[z2 + 3] += c23; M[z3] += c30; M[z3 + 1] += c31; M[z3 + 2] += c32; M[z3 + 3] += c33;
        } else {
          M[z0] = c00; M[z0 + 1] = c01; M[z0 + 2] = c02; M[z0 + 3] = c03; M[z1] = c10; M[z1 + 1] = c11; M[z1 + 2] = c12; M[z1 + 3] = c13;
          M[z2] = c20; M[z2 + 1] = c21; M[z2 + 2] = c22; M[z2 + 3] = c23; M[z3] = c30; M[z3 + 1] = c31; M[z3 + 2] = c32; M[z3 + 3] = c33;
        }
      }
    }
  }
  const powers = Float64Array.from({ length: 255 }, (_, i) => 2 ** (i - 127)), [p0, p1, p2, p3, p4, p5] = EXP;
  function exps(at, n, scale, shift) {
    let sum = 0;
    for (let i = at; i < at + n; i++) {
      const x = Math.min(Math.max(scale * M[i] - shift, -87), 87), power = Math.floor(x * Math.LOG2E + 0.5), r = x - power * Math.LN2;
      sum += M[i] = powers[power + 127] * ((((((p0 * r + p1) * r + p2) * r + p3) * r + p4) * r + p5) * r * r + r + 1);
    }
    return sum;
  }
  return { product, exps };
}

/** The same on a WebAssembly.Memory, put together byte by byte: no file, no request. Null where there is no WebAssembly
 * with SIMD, or where the policy of the page forbids it. */
function simdArithmetic(memory) {
  const leb = (n) => (n < 128 ? [n] : [(n & 127) | 128, ...leb(n >> 7)]);
  const signed = (n) => (n >= -64 && n < 64 ? [n & 127] : [(n & 127) | 128, ...signed(n >> 7)]);
  const get = (i) => [0x20, i], set = (i) => [0x21, i], tee = (i) => [0x22, i], int = (n) => [0x41, ...signed(n)];
  const plus = [0x6a], times = [0x6c], simd = (op) => [0xfd, ...leb(op)], splat = simd(0x13);
  const load = (at) => [...simd(0), 2, at], store = (at) => [...simd(11), 2, at], loadSplat = [...simd(9), 2, 0];
  const [vAdd, vSub, vMul, vMin, vMax, nearest] = [0xe4, 0xe5, 0xe6, 0xe8, 0xe9, 0x6a].map(simd);
  const [toInt, iAdd, iShift] = [0xf8, 0xae, 0xab].map(simd);
  const float = (x) => [0x43, ...new Uint8Array(new Float32Array([x]).buffer)], vector = (x) => [...float(x), ...splat];
  const bump = (local, by) => [...get(local), ...by, ...plus, ...set(local)];
  const until = (local, end, ...body) => [0x03, 0x40, ...body.flat(), ...get(local), ...get(end), 0x48, 0x0d, 0, 0x0b];
  const each = (n, f) => Array.from({ length: n }, (_, i) => f(i)).flat();

  // The product in tiles of 4 x 8. All distances are in bytes. Locals: 11 parameters, 9 integers, 11 vectors.
  const [c, ldc, a, ar, ac, b, ldb, m, n, k, adds, i, j, p, y, z, x0] = Array(17).keys(), y0 = 20, x = 22, sum = 23;
  const tile = [
    ...each(8, (q) => [...vector(0), ...set(sum + q)]),
    ...get(a), ...get(i), ...get(ar), ...times, ...plus, ...set(x0),
    ...each(3, (r) => [...get(x0 + r), ...get(ar), ...plus, ...set(x0 + r + 1)]),
    ...get(b), ...get(j), ...plus, ...set(y), ...int(0), ...set(p),
    ...until(p, k,
      each(2, (h) => [...get(y), ...load(16 * h), ...set(y0 + h)]),
      each(4, (r) => [...get(x0 + r), ...loadSplat, ...set(x), ...bump(x0 + r, get(ac)),
        ...each(2, (h) => [...get(x), ...get(y0 + h), ...vMul, ...get(sum + 2 * r + h), ...vAdd, ...set(sum + 2 * r + h)])]),
      bump(y, get(ldb)), bump(p, int(1))),
    ...get(c), ...get(i), ...get(ldc), ...times, ...plus, ...get(j), ...plus, ...set(z),
    ...each(4, (r) => [
      ...get(adds), 0x04, 0x40, // if
      ...each(2, (h) => [...get(sum + 2 * r + h), ...get(z), ...load(16 * h), ...vAdd, ...set(sum + 2 * r + h)]), 0x0b,
      ...each(2, (h) => [...get(z), ...get(sum + 2 * r + h), ...store(16 * h)]),
      ...bump(z, get(ldc)),
    ]),
  ];
  const product = [2, 9, 0x7f, 11, 0x7b, ...int(0), ...set(i),
    ...until(i, m, int(0), set(j), until(j, n, tile, bump(j, int(32))), bump(i, int(4))), 0x0b];

  // The exponentials. ln 2 is the sum of two numbers, of which the first has so few digits that its products are exact.
  const [at, end, scale, shift, v, power, series, total] = Array(8).keys();
  const horner = [...EXP.slice(1), 1, 1];
  const exps = [1, 4, 0x7b, ...vector(0), ...set(total), ...get(at), ...get(end), ...plus, ...set(end),
    ...until(at, end,
      get(at), load(0), get(scale), splat, vMul, get(shift), splat, vSub, vector(-87), vMax, vector(87), vMin, tee(v),
      vector(Math.LOG2E), vMul, nearest, set(power),
      get(v), get(power), vector(0.693359375), vMul, vSub, get(power), vector(-2.12194440e-4), vMul, vSub, set(v),
      vector(EXP[0]), ...horner.map((factor) => [...get(v), ...vMul, ...vector(factor), ...vAdd]),
      get(power), toInt, int(127), simd(0x11), iAdd, int(23), iShift, vMul, set(series),
      get(at), get(series), store(0), get(total), get(series), vAdd, set(total), bump(at, int(16))),
    ...each(4, (lane) => [...get(total), ...simd(0x1f), lane, ...(lane ? [0x92] : [])]), 0x0b];

  const section = (id, ...parts) => [id, ...leb(parts.flat().length), ...parts.flat()];
  const sized = (body) => [...leb(body.length), ...body];
  const code = new Uint8Array([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0,
    ...section(1, [2, 0x60, 11, ...Array(11).fill(0x7f), 0, 0x60, 4, 0x7f, 0x7f, 0x7d, 0x7d, 1, 0x7d]),
    ...section(2, [1, 1, 0x65, 1, 0x6d, 2, 0, 1]), // the memory, e.m
    ...section(3, [2, 0, 1]), ...section(7, [2, 1, 0x70, 0, 0, 1, 0x78, 0, 1]), // exports p and x
    ...section(10, [2], sized(product), sized(exps))]);
  try {
    const { p: multiply, x: exponentials } = new WebAssembly.Instance(new WebAssembly.Module(code), { e: { m: memory } }).exports;
    return {
      product: (c, ldc, a, ar, ac, b, ldb, m, n, k, adds) =>
        multiply(4 * c, 4 * ldc, 4 * a, 4 * ar, 4 * ac, 4 * b, 4 * ldb, m, 4 * n, k, Number(adds)),
      exps: (at, n, scale, shift) => exponentials(4 * at, 4 * n, scale, shift),
    };
  } catch {
    return null;
  }
}

/** The lengths of whole texts, one behind the other, as rows of a batch. texts: ids, each with one more than it has targets. */
function batchOf(texts, isShifted = true) {
  const places = [], lengths = texts.map((ids) => up8(ids.length - 1)), rows = lengths.reduce((a, b) => a + b, 0);
  const ids = new Int32Array(rows), targets = new Int32Array(rows).fill(-1); // -1 does not count
  let first = 0;
  texts.forEach((text, n) => {
    places.push({ first, T: lengths[n], n: text.length - 1 });
    ids.set(text.slice(0, -1), first);
    targets.set(isShifted ? text.slice(1) : text.slice(0, -1), first);
    first += lengths[n];
  });
  return { places, rows, ids, targets, n: texts.reduce((sum, text) => sum + text.length - 1, 0) };
}

/** A model with random weights, and what trains it. It is the library's preset "modern" without qk-norm and tied embeddings.
 * maxRows, maxT: the most rows of a batch and of a text, multiples of 8, as C / H and F are. random: numbers in [0, 1).
 * how: what is computed, and may be changed at any time; all true is a Transformer: causal, residual, norm.
 * Returns M, params, how, and the functions at the end. */
function learner({ V, C = 32, H = 2, F = 64, L = 2, maxRows, maxT, random, how = {}, allowSimd = true }) {
  const D = C / H, Vp = up8(V), SCALE = D ** -0.5, EPS = 1e-5, BASE = 10000, params = [];
  if (C % (8 * H) || F % 8 || maxT % 8 || maxRows % 8) throw new Error("C / H, F, maxT and maxRows must be multiples of 8");
  how = { causal: true, residual: true, norm: true, ...how };
  let used = 0, step = 0;
  const take = (n) => (used += up8(n)) - up8(n);

  // parts: the matrices that lie one under the other in it, of which Muon treats each by itself; 0 for AdamW
  function parameter(name, rows, cols, std, parts = 0) {
    const one = { name, rows, cols, std, parts, n: rows * cols };
    for (const what of ["w", "g", "m", "v", "turned"]) one[what] = take(one.n); // turned: w as (in, out)
    params.push(one);
    return one;
  }
  const into = (n) => (how.residual ? 0 : n ** -0.5); // with 0 a block begins as the identity; alone it would end all signal
  const embed = parameter("embed", Vp, C, 0.02);
  const blocks = Array.from({ length: L }, (_, l) => ({
    attnNorm: parameter(`blocks.${l}.attn_norm`, 1, C, 0),
    qkv: parameter(`blocks.${l}.attention.qkv`, 3 * C, C, C ** -0.5, 3),
    o: parameter(`blocks.${l}.attention.o_proj`, C, C, into(C), 1),
    ffnNorm: parameter(`blocks.${l}.ffn_norm`, 1, C, 0),
    gateUp: parameter(`blocks.${l}.ffn.gate_up`, 2 * F, C, C ** -0.5, 2),
    down: parameter(`blocks.${l}.ffn.down_proj`, C, F, into(F), 1),
    // what the forward pass leaves for the backward pass; a norm leaves 1 / root mean square
    normed: take(maxRows * C), scale: take(maxRows), heads: take(maxRows * 3 * C), p: take(maxRows * H * maxT), y: take(maxRows * C),
    between: take(maxRows * C), normed2: take(maxRows * C), scale2: take(maxRows), gu: take(maxRows * 2 * F),
    sigmoid: take(maxRows * F), a: take(maxRows * F), end: take(maxRows * C),
  }));
  const finalNorm = parameter("final_norm", 1, C, 0), head = parameter("lm_head", Vp, C, C ** -0.5);
  const begin = take(maxRows * C), normed = take(maxRows * C), scale = take(maxRows), logits = take(maxRows * Vp);
  const [dx, dn, dy] = [C, C, C].map((n) => take(maxRows * n)), [dHeads, dgu, da] = [3 * C, 2 * F, F].map((n) => take(maxRows * n));
  const turned = take(D * maxT), ds = take(maxT * maxT); // of one head
  const work = Array.from({ length: 4 }, () => take(Math.max(C * F, C * C))); // of Muon
  const cos = take(maxT * D / 2), sin = take(maxT * D / 2);

  const memory = allowSimd && typeof WebAssembly === "object" && new WebAssembly.Memory({ initial: Math.ceil(used / 16384) });
  const simd = memory ? simdArithmetic(memory) : null, M = new Float32Array(simd ? memory.buffer : used);
  const { product, exps } = simd ?? plainArithmetic(M);
  const normal = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
  for (const { w, n, rows, std } of params) for (let i = w; i < w + n; i++) M[i] = rows === 1 ? 1 : std && std * normal();
  for (let t = 0, at = 0; t < maxT; t++) {
    for (let i = 0; i < D / 2; i++, at++) [M[cos + at], M[sin + at]] = [Math.cos, Math.sin].map((of) => of(t * BASE ** (-2 * i / D)));
  }

  // The parts, each with its way back. What comes back is added to dIn, but for that of a linear map.
  function transpose(to, from, rows, cols, ld = cols) { // (rows, cols) -> (cols, rows)
    for (let i = 0; i < rows; i++) for (let j = 0; j < cols; j++) M[to + j * rows + i] = M[from + i * ld + j];
  }
  function refresh() {
    for (const { turned, w, rows, cols } of params) if (rows > 1) transpose(turned, w, rows, cols);
  }
  function linear(out, x, rows, { turned, rows: n, cols }, adds = false) { // out (rows, n) = x (rows, cols) w^T
    product(out, n, x, cols, 1, turned, n, rows, n, cols, adds);
  }
  function linearBack(dIn, dOut, x, rows, { w, g, rows: n, cols }) { // dIn (rows, cols) = dOut (rows, n) w
    product(dIn, cols, dOut, n, 1, w, cols, rows, cols, n, false);
    for (let r = 0; r < rows; r += PART) product(g, cols, dOut + r * n, 1, n, x + r * cols, cols, n, cols, Math.min(PART, rows - r), true);
  }
  function norm(out, scale, x, rows, { w }) { // out = x / sqrt(mean(x^2) + EPS) * gain
    if (!how.norm) return M.copyWithin(out, x, x + rows * C);
    for (let r = 0, at = 0; r < rows; r++, at += C) {
      let sum = 0;
      for (let i = at; i < at + C; i++) sum += M[x + i] * M[x + i];
      const s = M[scale + r] = 1 / Math.sqrt(sum / C + EPS);
      for (let i = 0; i < C; i++) M[out + at + i] = M[x + at + i] * s * M[w + i];
    }
  }
  function normBack(dIn, dOut, x, scale, rows, { w, g }) {
    for (let i = 0; i < rows * C && !how.norm; i++) M[dIn + i] += M[dOut + i];
    for (let r = 0, at = 0; r < rows && how.norm; r++, at += C) {
      const s = M[scale + r];
      let dot = 0;
      for (let i = 0; i < C; i++) {
        const dx = M[dOut + at + i] * M[x + at + i];
        dot += dx * M[w + i];
        M[g + i] += dx * s;
      }
      dot *= s * s / C;
      for (let i = 0; i < C; i++) M[dIn + at + i] += s * (M[dOut + at + i] * M[w + i] - dot * M[x + at + i]);
    }
  }
  function rotate(x, places, sign) { // queries and keys; a pair is a number of each half of a head; sign -1 turns back
    for (const { first, T } of places) {
      for (let head = 0; head < T * 2 * H; head++) { // of each token the queries, then the keys
        const t = Math.floor(head / (2 * H)), at = x + (first + t) * 3 * C + (head % (2 * H)) * D;
        for (let i = 0; i < D / 2; i++) {
          const c = M[cos + t * D / 2 + i], s = sign * M[sin + t * D / 2 + i], u = M[at + i], v = M[at + i + D / 2];
          M[at + i] = u * c - v * s;
          M[at + i + D / 2] = v * c + u * s;
        }
      }
    }
  }
  function inHeads({ heads, p, y }, places, compute) { // compute({ T, n }, and where q, k, v, p, y of this text and head begin)
    for (const place of places) {
      for (let head = 0; head < H; head++, p += place.T ** 2) {
        const q = heads + place.first * 3 * C + head * D;
        compute(place, q, q + C, q + 2 * C, p, y + place.first * C + head * D);
      }
    }
  }
  function inBlocks(T, compute) { // compute(from, so many queries from there on, and the number of keys that they see)
    for (let from = 0; from < T; from += BLOCK) compute(from, Math.min(BLOCK, T - from), how.causal ? Math.min(from + BLOCK, T) : T);
  }
  function attend(block, places) { // y = softmax(q k^T / sqrt(D)) v
    inHeads(block, places, ({ T, n: tokens }, q, k, v, p, y) => {
      transpose(turned, k, T, D, 3 * C);
      inBlocks(T, (from, n, seen) => {
        product(p + from * T, T, q + from * 3 * C, 3 * C, 1, turned, T, n, seen, D, false);
        for (let t = from; t < from + n; t++) {
          const row = p + t * T, last = row + (how.causal ? t + 1 : tokens);
          let most = -Infinity;
          for (let i = row; i < last; i++) if (M[i] > most) most = M[i];
          M.fill(-1e9, last, row + seen); // exp makes nothing of it
          const sum = exps(row, seen, SCALE, most * SCALE);
          for (let i = row; i < last; i++) M[i] /= sum;
          M.fill(0, last, row + T);
        }
        product(y + from * C, C, p + from * T, T, 1, v, 3 * C, n, D, seen, false);
      });
    });
  }
  function attendBack(block, places) { // dy -> dHeads
    inHeads(block, places, ({ T }, q, k, v, p, y) => {
      const [dq, dk, dv] = [q, k, v].map((at) => at - block.heads + dHeads), up = y - block.y + dy;
      transpose(turned, v, T, D, 3 * C);
      inBlocks(T, (from, n, seen) => {
        product(ds + from * T, T, up + from * C, C, 1, turned, T, n, seen, D, false); // dp = dy v^T
        for (let t = from; t < from + n; t++) { // through the softmax: p (dp - sum of p dp); that sum is the one of y dy
          let dot = 0;
          for (let i = t * C; i < t * C + D; i++) dot += M[y + i] * M[up + i];
          for (let i = t * T; i < t * T + seen; i++) M[ds + i] = M[p + i] * (M[ds + i] - dot) * SCALE;
        }
        product(dq + from * 3 * C, 3 * C, ds + from * T, T, 1, k, 3 * C, n, D, seen, false);
        for (let key = 0; key < seen; key += BLOCK) { // dk = ds^T q, dv = p^T dy: these queries give to all keys that they see
          const most = Math.min(BLOCK, seen - key), adds = from > (how.causal ? key : 0);
          product(dk + key * 3 * C, 3 * C, ds + from * T + key, 1, T, q + from * 3 * C, 3 * C, most, D, n, adds);
          product(dv + key * 3 * C, 3 * C, p + from * T + key, 1, T, up + from * C, C, most, D, n, adds);
        }
      });
    });
  }
  function feed({ gu, sigmoid, a }, rows) { // a = silu(gate) up
    for (let r = 0; r < rows; r++) M.copyWithin(sigmoid + r * F, gu + r * 2 * F, gu + r * 2 * F + F);
    exps(sigmoid, rows * F, -1, 0);
    for (let r = 0, g = gu, at = 0; r < rows; r++, g += 2 * F) {
      for (let i = 0; i < F; i++, at++) {
        const s = M[sigmoid + at] = 1 / (1 + M[sigmoid + at]);
        M[a + at] = M[g + i] * s * M[g + F + i];
      }
    }
  }
  function feedBack({ gu, sigmoid }, rows) { // da -> dgu
    for (let r = 0, g = 0, at = 0; r < rows; r++, g += 2 * F) {
      for (let i = 0; i < F; i++, at++) {
        const gate = M[gu + g + i], s = M[sigmoid + at], d = M[da + at];
        M[dgu + g + i] = d * M[gu + g + F + i] * s * (1 + gate * (1 - s));
        M[dgu + g + F + i] = d * gate * s;
      }
    }
  }

  // The whole of it
  function forward({ places, rows, ids }) {
    if (rows > maxRows || places.some(({ T }) => T > maxT)) throw new Error("The texts of this batch are too long, or too many.");
    for (let r = 0; r < rows; r++) M.copyWithin(begin + r * C, embed.w + ids[r] * C, embed.w + ids[r] * C + C);
    let x = begin;
    for (const block of blocks) {
      const { between, normed2, end } = block;
      norm(block.normed, block.scale, x, rows, block.attnNorm);
      linear(block.heads, block.normed, rows, block.qkv);
      rotate(block.heads, places, 1);
      attend(block, places);
      M.copyWithin(between, x, x + rows * C);
      linear(between, block.y, rows, block.o, how.residual);
      norm(normed2, block.scale2, between, rows, block.ffnNorm);
      linear(block.gu, normed2, rows, block.gateUp);
      feed(block, rows);
      M.copyWithin(end, between, between + rows * C);
      linear(end, block.a, rows, block.down, how.residual);
      x = end;
    }
    norm(normed, scale, x, rows, finalNorm);
    linear(logits, normed, rows, head);
  }
  function lossOf({ rows, targets }, n) { // the mean over n targets; the logits become their gradient
    let loss = 0;
    for (let r = 0, row = logits; r < rows; r++, row += Vp) {
      const target = row + targets[r];
      if (targets[r] < 0) { M.fill(0, row, row + Vp); continue; }
      M.fill(-1e9, row + V, row + Vp);
      let most = -Infinity;
      for (let i = row; i < row + V; i++) if (M[i] > most) most = M[i];
      const right = most - M[target], sum = exps(row, Vp, 1, most), share = 1 / (sum * n);
      loss += right + Math.log(sum);
      for (let i = row; i < row + Vp; i++) M[i] *= share;
      M[target] -= 1 / n;
    }
    return loss / n;
  }
  function backward({ places, rows, ids }) {
    const onlyThrough = () => how.residual || M.fill(0, dx, dx + rows * C);
    for (const { g, n } of params) M.fill(0, g, g + n);
    M.fill(0, dx, dx + rows * C);
    linearBack(dn, logits, normed, rows, head);
    normBack(dx, dn, blocks.at(-1)?.end ?? begin, scale, rows, finalNorm);
    for (let l = L - 1; l >= 0; l--) {
      const block = blocks[l];
      linearBack(da, dx, block.a, rows, block.down);
      feedBack(block, rows);
      linearBack(dn, dgu, block.normed2, rows, block.gateUp);
      onlyThrough();
      normBack(dx, dn, block.between, block.scale2, rows, block.ffnNorm);
      linearBack(dy, dx, block.y, rows, block.o);
      attendBack(block, places);
      rotate(dHeads, places, -1);
      linearBack(dn, dHeads, block.normed, rows, block.qkv);
      onlyThrough();
      normBack(dx, dn, blocks[l - 1]?.end ?? begin, block.scale, rows, block.attnNorm);
    }
    for (let r = 0; r < rows; r++) for (let i = 0; i < C; i++) M[embed.g + ids[r] * C + i] += M[dx + r * C + i];
  }

  // The optimizers: Muon or AdamW for the matrices of the blocks, AdamW for all else
  function clip(most) {
    let sum = 0;
    for (const { g, n } of params) for (let i = g; i < g + n; i++) sum += M[i] * M[i];
    const by = most / (Math.sqrt(sum) + 1e-6);
    if (by < 1) for (const { g, n } of params) for (let i = g; i < g + n; i++) M[i] *= by;
  }
  function adamw({ w, g, m, v, n }, rate) { // Loshchilov and Hutter 2017, algorithm 2, without decay
    const beta1 = 0.9, beta2 = 0.95, size = rate / (1 - beta1 ** step), right = 1 / (1 - beta2 ** step);
    for (let i = 0; i < n; i++) {
      const grad = M[g + i];
      M[m + i] += (1 - beta1) * (grad - M[m + i]);
      M[v + i] += (1 - beta2) * (grad * grad - M[v + i]);
      M[w + i] -= size * M[m + i] / (Math.sqrt(M[v + i] * right) + 1e-8);
    }
  }
  // (a, b, c) of each iteration. Source: Amsel et al. 2025, "The Polar Express", algorithm 1, as in the library
  const POLAR = [[8.3865, -24.3696, 17.7251], [4.1414, -3.0173, 0.5524], [3.9226, -2.8672, 0.5357]];
  function muon({ w, g, m, n, cols, parts }, rate) { // each matrix moves along its orthogonalised momentum. Jordan et al. 2024
    const size = n / parts, rows = size / cols, [x, xt, gram, inner] = work, few = Math.min(rows, cols), many = Math.max(rows, cols);
    const turn = (from, to) => (transpose(xt, x, from, to), M.copyWithin(x, xt, xt + size)); // (from, to) -> (to, from)
    for (let at = 0; at < n; at += size) {
      let sum = 0;
      for (let i = 0; i < size; i++) {
        const grad = M[g + at + i], mean = M[m + at + i] += 0.1 * (grad - M[m + at + i]), ahead = M[x + i] = grad + 0.9 * (mean - grad);
        sum += ahead * ahead;
      }
      for (let i = x, by = 1 / Math.max(Math.sqrt(sum), 1e-7); i < x + size; i++) M[i] *= by;
      if (rows > cols) turn(rows, cols); // the products are smaller for (few, many)
      for (const [a, b, c] of POLAR) { // x = (a + b gram + c gram^2) x
        transpose(xt, x, few, many);
        product(gram, few, x, many, 1, xt, few, few, few, many, false);
        product(inner, few, gram, few, 1, gram, few, few, few, few, false);
        for (let i = 0; i < few * few; i++) M[inner + i] = b * M[gram + i] + c * M[inner + i] + (i % (few + 1) ? 0 : a);
        product(xt, many, inner, few, 1, x, many, few, many, few, false);
        M.copyWithin(x, xt, xt + size);
      }
      if (rows > cols) turn(few, many);
      for (let i = 0, by = rate * 0.2 * Math.sqrt(many); i < size; i++) M[w + at + i] -= by * M[x + i];
    }
  }

  // What others call. texts: a list of lists of ids
  /** The loss of texts, in nats per token; their gradients are in M. */
  function gradients(texts, isShifted) {
    const batch = batchOf(texts, isShifted), { n } = batch;
    forward(batch);
    const loss = lossOf(batch, n);
    backward(batch);
    return { loss, n };
  }
  /** One update. matrixRate: of the matrices in blocks, by Muon or AdamW; tableRate: of all else. */
  function update(texts, { matrixRate, tableRate, isMuon = true, isShifted = true }) {
    const found = gradients(texts, isShifted);
    clip(1);
    step++;
    for (const one of params) isMuon && one.parts ? muon(one, matrixRate) : adamw(one, one.parts ? matrixRate : tableRate);
    refresh();
    return found;
  }
  /** The loss of texts in nats per token, by one forward pass for each. */
  function evaluate(texts) {
    const batches = texts.map((text) => batchOf([text]));
    const loss = batches.reduce((sum, batch) => (forward(batch), sum + lossOf(batch, 1)), 0);
    return loss / batches.reduce((sum, { n }) => sum + n, 0);
  }
  /** Reads ids (T). Returns the logits (V) after each of them, which hold until it computes again. */
  function readAll(ids) {
    forward(batchOf([[...ids, 0]]));
    return ids.map((_, t) => M.subarray(logits + t * Vp, logits + t * Vp + V));
  }
  const read = (ids) => readAll(ids).at(-1).slice();
  /** The attention weights (T, T) of each head [layer][head] for ids (T). */
  function attention(ids) {
    const batch = batchOf([[...ids, 0]]), n = ids.length, found = blocks.map(() => []);
    forward(batch);
    blocks.forEach((block, layer) => inHeads(block, batch.places, ({ T }, q, k, v, p) => {
      const rows = new Float32Array(n * n);
      for (let t = 0; t < n; t++) rows.set(M.subarray(p + t * T, p + t * T + n), t * n);
      found[layer].push(rows);
    }));
    return found;
  }
  refresh();
  return { M, params, how, V, isSimd: Boolean(simd), gradients, update, evaluate, read, readAll, attention, refresh };
}
