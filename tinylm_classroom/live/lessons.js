// What a model learns from in a page: stories of StoryWorld without end, or a text that a visitor has pasted.
// A source has: tokenizer, as `to_dict` of the library gives it; tokens, the text of each id; V; most, the longest text that
// it draws, in tokens; draw(random), ids of a new text to learn from; heldOut, texts that are never drawn; levels, what
// predictors lose in nats per token: [what they know, loss]; told, of StoryWorld: for some held-out texts the places
// where one word alone is possible, one that the story has said: [index in the text, kind]. random: numbers in [0, 1).

const N_HELD_OUT = 300, HELD_SEED = 7, WINDOW = 128; // texts of StoryWorld; the seed that draws them; tokens
const N_ASKED = 32; // of these, of which it is asked what it remembers
const N_WINDOWS = 24; // held out of a text
const LEAST_BYTES = 20000, MOST_CHARACTERS = 2000000, LEAST_DIFFERENT = 10, MOST_DIFFERENT = 256;
const MOST_CONTROLS = 0.01; // of the characters of a text

/** The words of a new story. rules: what `stories_record` of stories.py makes. */
function drawStory({ classes, different, pronouns, probs, sentences, slots, scenes }, random) {
  const words = [], said = {};
  for (let scene = -1, way; words.length === 0 || scene >= 0; scene = way[1]) { // -1, the last one, is the opening
    let left = random();
    const ways = scenes.at(scene);
    way = ways.find(([p, , ...some]) => (left -= probs[p] * some.length) < 0) ?? ways.at(-1);
    for (const i of sentences[way[2 + Math.floor(random() * (way.length - 2))]]) {
      const { text = "", role, form, new: name } = slots[i];
      if (name) {
        const among = classes[name].filter((word) => word !== said[different[role]]);
        said[role] = among[Math.floor(random() * among.length)];
      }
      words.push(text + (form ? pronouns[form][said[role]] : said[role] ?? ""));
    }
  }
  return words;
}

/** Every word of StoryWorld, in the order of the library's tokenizer. */
function wordsOf({ classes, pronouns, slots }) {
  const ofRole = {}, found = new Set();
  for (const { role, new: name } of slots) if (name) ofRole[role] = [...(ofRole[role] ?? []), ...classes[name]];
  for (const { text = "", role, form } of slots) {
    for (const word of role ? ofRole[role] : [""]) found.add(text + (form ? pronouns[form][word] : word));
  }
  return [...found].sort((a, b) => (a < b ? -1 : 1));
}

/** The places of a story, a line end before it, where one word alone is possible, and the story has said it: [index, kind]. */
function toldPlaces(rules, [, ...words]) {
  const reader = new StoryReader(rules), isSure = words.map((word) => reader.read(word) > 0.999);
  return reader.past.flatMap(({ kind }, i) => (kind && isSure[i] ? [[i + 1, kind]] : []));
}

/** StoryWorld as a source. entropies: { unigram, bigram, floor } in nats per token. */
function storiesOf(rules, entropies) {
  const held = new Generator(HELD_SEED), random = () => held.next();
  const tokens = wordsOf(rules), ids = new Map(tokens.map((word, id) => [word, id])), end = ids.get("\n");
  const draw = (random) => [end, ...drawStory(rules, random).map((word) => ids.get(word))];
  const heldOut = Array.from({ length: N_HELD_OUT }, () => draw(random));
  return {
    tokenizer: { kind: "words", words: tokens }, tokens, V: tokens.length, most: 136, draw, end, isStory: true,
    heldOut, told: heldOut.slice(0, N_ASKED).map((text) => toldPlaces(rules, text.map((id) => tokens[id]))),
    levels: [["nothing", Math.log(tokens.length)], ["how frequent words are", entropies.unigram],
      ["the word before", entropies.bigram], ["everything", entropies.floor]],
  };
}

/** What is wrong with a text to learn from, in a sentence; empty if nothing is. */
function faultOf(text) {
  const piece = text.slice(0, MOST_CHARACTERS), bytes = new TextEncoder().encode(piece).length, different = new Set(piece).size;
  if (!piece.trim()) return `The text is empty. Paste at least ${LEAST_BYTES / 1000} KB of text.`;
  if ((piece.match(/[\0-\x08\x0e-\x1f\ufffd]/g)?.length ?? 0) > MOST_CONTROLS * piece.length) return "This is not a text: it has many characters that nobody can read. Paste plain text.";
  if (bytes < LEAST_BYTES) return `The text has ${(bytes / 1000).toFixed(1)} KB, and a model learns nothing from so little. Paste at least ${LEAST_BYTES / 1000} KB: about ten pages.`;
  if (different < LEAST_DIFFERENT) return `The text has only ${different} different ${different === 1 ? "character" : "characters"}. Paste one with at least ${LEAST_DIFFERENT}.`;
  return "";
}

/** A pasted text as a source: characters, or bytes where there are too many different ones. The last tenth is held out.
 * Throws an Error with what is wrong. */
function textOf(text) {
  const fault = faultOf(text);
  if (fault) throw new Error(fault);
  const piece = text.slice(0, MOST_CHARACTERS).replace(/\r\n?/g, "\n"), characters = [...new Set(piece)].sort((a, b) => a.codePointAt(0) - b.codePointAt(0));
  const hasBytes = characters.length > MOST_DIFFERENT || /\p{Surrogate}/u.test(piece), byte = new TextDecoder();
  const tokens = hasBytes ? Array.from({ length: 256 }, (_, i) => (i < 128 ? String.fromCharCode(i) : byte.decode(Uint8Array.of(i)))) : characters;
  const number = new Map(characters.map((one, id) => [one, id]));
  const ids = hasBytes ? new TextEncoder().encode(piece) : Uint16Array.from(Array.from(piece, (one) => number.get(one)));
  const n = Math.floor(0.9 * ids.length), window = (from) => Array.from(ids.subarray(from, from + WINDOW + 1));
  const held = Math.min(N_WINDOWS, Math.floor((ids.length - n - 1) / WINDOW));
  return {
    tokenizer: hasBytes ? { kind: "bytes" } : { kind: "chars", characters: characters.join("") }, tokens, V: tokens.length, most: WINDOW, isStory: false,
    draw: (random) => window(Math.floor(random() * (n - WINDOW))), end: -1, told: [],
    heldOut: Array.from({ length: held }, (_, i) => window(n + Math.floor(i * (ids.length - n - WINDOW - 1) / Math.max(1, held - 1)))),
    levels: [["nothing", Math.log(tokens.length)], ...countedLevels(ids.subarray(0, n), tokens.length, hasBytes ? "byte" : "character")],
  };
}

/** What is lost in nats per token by who knows how frequent tokens are, and by who knows the one before. */
function countedLevels(ids, V, what) {
  const single = new Float64Array(V), pairs = new Map();
  ids.forEach((id, i) => {
    single[id]++;
    if (i) pairs.set(ids[i - 1] * V + id, (pairs.get(ids[i - 1] * V + id) ?? 0) + 1);
  });
  const entropy = (counts, total) => counts.reduce((sum, count) => (count ? sum - count / total * Math.log(count / total) : sum), 0);
  const unigram = entropy([...single], ids.length);
  return [[`how frequent ${what}s are`, unigram], [`the ${what} before`, entropy([...pairs.values()], ids.length - 1) - unigram]];
}
