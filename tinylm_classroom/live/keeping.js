// A model that has learned in a page, kept: as a checkpoint of the library in a zip file, or as the record of a page.

/** The weights of a learner as plain arrays, by the names and in the order of the library's state_dict: { name: [shape, numbers] }. */
function kept({ M, params, V }, { tokenizer }) {
  const weights = {}, halves = { qkv: ["q_proj", "k_proj", "v_proj"], gate_up: ["gate_proj", "up_proj"] };
  for (const { name, w, n, rows, cols, parts } of params) {
    const last = name.split(".").at(-1), folder = name.slice(0, -last.length), isTable = parts === 0 && rows > 1, own = isTable ? V : rows;
    (halves[last] ?? [last]).forEach((part, i, all) => {
      const size = isTable ? V * cols : n / all.length;
      weights[`${folder}${part}.weight`] = [rows === 1 ? [cols] : [own / all.length, cols], M.slice(w + i * size, w + (i + 1) * size)];
    });
  }
  return { weights, tokenizer, V };
}

/** Numbers as base64 of half precision, little-endian, the nearest even one where two are as near. */
function packHalves(arrays) {
  let text = "";
  for (const values of arrays) {
    for (const value of values) {
      const size = Math.min(Math.abs(value), 65504), exponent = Math.max(-14, Math.floor(Math.log2(size || 1e-9)));
      const scaled = size * 2 ** (10 - exponent), down = Math.floor(scaled), rest = scaled - down;
      const whole = down + Number(rest > 0.5 || (rest === 0.5 && down % 2 === 1)); // 1024 to 2048, or less where the exponent is the least
      const bits = (value < 0 ? 0x8000 : 0) | ((exponent + 14) * 1024 + whole);
      text += String.fromCharCode(bits & 255, bits >> 8);
    }
  }
  return btoa(text);
}

/** What `tinylm.open` and the page of a model take. config: the library's, as the page has it. */
function recordOf({ weights, tokenizer, V, updates }, config) {
  const D = config.d_model / config.n_heads;
  return {
    config: { ...config, vocab_size: V, n_kv_heads: config.n_heads, d_head: D },
    weights: packHalves(Object.values(weights).map(([, numbers]) => numbers)),
    tokenizer, speeds: Array.from({ length: D / 2 }, (_, i) => 10000 ** (-2 * i / D)), fingerprint: `learned-${V}-${updates}`,
  };
}

const CRC = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let bit = 0; bit < 8; bit++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
  return n;
});
const utf = (text) => new TextEncoder().encode(text), little = (n, size) => Array.from({ length: size }, (_, i) => Math.floor(n / 256 ** i) % 256);

/** Files, [name, bytes], as one zip file without compression. */
function zip(files) {
  const pieces = [], directory = [];
  let at = 0;
  for (const [name, bytes] of files) {
    const crc = ~bytes.reduce((sum, byte) => CRC[(sum ^ byte) & 255] ^ (sum >>> 8), -1) >>> 0, title = utf(name);
    const sizes = [crc, bytes.length, bytes.length].flatMap((n) => little(n, 4));
    const facts = [20, 0, 0, 8, 0, 0, 0, 0, 0x21, 0, ...sizes, ...little(title.length, 2), 0, 0]; // 8: names are UTF-8
    pieces.push(Uint8Array.from([0x50, 0x4b, 3, 4, ...facts]), title, bytes);
    directory.push(Uint8Array.from([0x50, 0x4b, 1, 2, 20, 0, ...facts, ...Array(10).fill(0), ...little(at, 4)]), title);
    at += 4 + facts.length + title.length + bytes.length;
  }
  const size = directory.reduce((sum, piece) => sum + piece.length, 0), n = little(files.length, 2);
  return new Blob([...pieces, ...directory, Uint8Array.from([0x50, 0x4b, 5, 6, 0, 0, 0, 0, ...n, ...n, ...little(size, 4), ...little(at, 4), 0, 0])], { type: "application/zip" });
}

/** Tensors, { name: [shape, dtype, bytes] }, as a safetensors file. */
function safetensors(tensors) {
  const header = {};
  let at = 0;
  for (const [name, [shape, dtype, bytes]] of Object.entries(tensors)) header[name] = { dtype, shape, data_offsets: [at, at += bytes.length] };
  const text = JSON.stringify(header), padded = text.padEnd(Math.ceil(text.length / 8) * 8), file = new Uint8Array(8 + padded.length + at);
  file.set(little(padded.length, 8));
  file.set(utf(padded), 8);
  let end = 8 + padded.length;
  for (const [, , bytes] of Object.values(tensors)) { file.set(bytes, end); end += bytes.length; }
  return file;
}

/** The zip file of a checkpoint that `load_model` reads when it is unpacked. config: JSON of the library's config, with sorted
 * keys, as its `json.dumps` writes it; the seal of a manifest is the SHA-256 of exactly that text. Rejects where a page has no SHA-256. */
async function checkpointOf({ weights, tokenizer, V, updates }, config, folder) {
  if (!globalThis.crypto?.subtle) throw new Error("This page cannot compute SHA-256, because it came over plain http. Open it from disk or over https.");
  const sha = async (bytes) => Array.from(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  const file = async (role, tensors) => {
    const bytes = safetensors(tensors), sha256 = await sha(bytes), name = `${role}-${sha256.slice(0, 16)}.safetensors`;
    return { name, bytes, entry: `{"bytes": ${bytes.length}, "name": "${name}", "sha256": "${sha256}"}` };
  };
  const floats = Object.entries(weights).map(([name, [shape, numbers]]) => [name, [shape, "F32", new Uint8Array(numbers.buffer, numbers.byteOffset, numbers.byteLength)]]);
  const files = [await file("model", Object.fromEntries(floats)), await file("training", { rng: [[1], "U8", new Uint8Array(1)] })];
  const ascii = (text) => JSON.stringify(text).replace(/[^ -~]/g, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
  const { kind, words, characters } = tokenizer;
  const own = [...(characters ? [`"characters": ${ascii(characters)}`] : []), `"kind": "${kind}"`, ...(words ? [`"words": [${words.map(ascii).join(", ")}]`] : [])];
  const text = [
    '{"batches": null', `"config": ${config.replace(/"vocab_size": \d+/, `"vocab_size": ${V}`)}`, '"extra": {"learned_in": "a page"}',
    `"files": {"model": ${files[0].entry}, "training": ${files[1].entry}}`, '"format": 1', '"optimizer": null', `"step": ${updates}`,
    `"tokenizer": {${own.join(", ")}}`, '"torch": "none"}',
  ].join(", ");
  const manifest = utf(`${text.slice(0, -1)}, "sha256": "${await sha(utf(text))}"}`);
  return zip([[`${folder}/checkpoint.json`, manifest], ...files.map(({ name, bytes }) => [`${folder}/${name}`, bytes])]);
}
