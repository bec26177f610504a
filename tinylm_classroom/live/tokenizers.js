// Text to ids and back: the same ids as the library's tokenizers of words, characters, bytes and byte pairs.

// Python's \w is a letter, a number or _, and its \s has four separators (1c to 1f) that are not White_Space.
const WORD = / ?[\p{L}\p{N}_]+(?:['\u2019][\p{L}\p{N}_]+)*| ?[^\p{L}\p{N}_\p{White_Space}\x1c-\x1f]|[\p{White_Space}\x1c-\x1f]/gu;
// Source: Radford et al. 2019 (GPT-2) and its released encoder, as in the library's `cutting`.
const PRE_TOKEN = /'(?:s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+/gu;
const FROM_UTF8 = new TextDecoder("utf-8", { ignoreBOM: true }); // a byte order mark is a character like any other

const LONGEST = 20, SOME = 3; // characters of an unknown word that are shown, words that are offered instead

/** Cuts a text into words, single marks and single spaces; a space belongs to the word or mark after it. */
function words(text) {
  return text.match(WORD) ?? [];
}

/** Cuts a text into special tokens, the longest first where several fit, and pre-tokens, which no merge crosses. */
function preTokens(text, special) {
  const longestFirst = [...special].sort((a, b) => b.length - a.length).map((token) => token.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&"));
  const parts = special.length ? text.split(new RegExp(`(${longestFirst.join("|")})`, "u")) : [text]; // text, special, text ...
  return parts.flatMap((part, i) => (i % 2 ? [part] : part.match(PRE_TOKEN) ?? []));
}

/** A text as Python's repr writes it: in quotes, with escapes for invisible characters. */
function quoted(text) {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const escapes = { "\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\", [quote]: `\\${quote}` };
  const number = (c) => {
    const hex = c.codePointAt(0).toString(16), [letter, width] = hex.length <= 2 ? ["x", 2] : hex.length <= 4 ? ["u", 4] : ["U", 8];
    return `\\${letter}${hex.padStart(width, "0")}`;
  };
  const seen = (c) => escapes[c] ?? (c !== " " && /[\p{C}\p{Z}]/u.test(c) ? number(c) : c);
  return quote + Array.from(text, seen).join("") + quote;
}

/** A token without the blank before it. */
const bare = (token) => token.replace(/^ +| +$/g, "");

/** A token of which every character can be seen, shortened. */
function shown(token) {
  const letters = [...token], signs = { " ": "␣", "\n": "↵", "\t": "⇥" };
  const number = (c) => `U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
  const seen = letters.slice(0, LONGEST).map((c) => signs[c] ?? (/[\p{C}\p{Z}]/u.test(c) ? number(c) : c));
  return seen.join("") + (letters.length > LONGEST ? "…" : "");
}

/** An Error with the name Unknown. word: the one without an id. place: its position, the number of characters (code points) before it. */
function unknown(what, word, before, reason) {
  const place = [...before].length;
  return Object.assign(new Error(`${what} ${quoted(word)} at position ${place} ${reason}`), { name: "Unknown", word, place });
}

/** The UTF-8 bytes of a text, each as the character of its number (Latin-1), as a vocabulary of bytes is written. */
function utf8(text) {
  return Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte));
}

/** Joins neighbouring ids: the pair that was learnt first at all its positions from left to right, then the next pair, and so on. */
function applyMerges(ids, rankOf, joined) {
  const right = ids.map((_, i) => i + 1), left = ids.map((_, i) => i - 1), waiting = new Map(); // rank of a pair -> its positions
  const rankAt = (i) => (i >= 0 && right[i] < ids.length ? rankOf(ids[i], ids[right[i]]) : undefined);
  const see = (i) => {
    const rank = rankAt(i);
    if (rank !== undefined) waiting.has(rank) ? waiting.get(rank).push(i) : waiting.set(rank, [i]);
  };
  ids.forEach((_, i) => see(i));
  while (waiting.size) {
    const first = [...waiting.keys()].reduce((a, b) => Math.min(a, b)), positions = waiting.get(first).sort((a, b) => a - b);
    waiting.delete(first);
    for (const i of positions) {
      if (ids[i] === null || rankAt(i) !== first) continue; // one of the two was joined since
      const gone = right[i];
      [ids[i], ids[gone], right[i], left[right[gone]]] = [joined[first], null, right[gone], i];
      see(left[i]);
      see(i);
    }
  }
  return ids.filter((id) => id !== null);
}

class Tokenizer {
  constructor(kind, vocab) {
    this.kind = kind;
    this.vocab = vocab;
    this.vocab_size = vocab.length;
    this.ids = new Map(vocab.map((token, id) => [token, id]));
  }

  /** The tokens of ids. Throws an Error for one outside 0..vocab_size-1. */
  tokens(ids) {
    return Array.from(ids, (id) => {
      if (this.vocab[id] === undefined) throw new Error(`token id ${id} is outside 0..${this.vocab_size - 1} (vocab_size - 1)`);
      return this.vocab[id];
    });
  }

  /** What an error of encode says to a reader. */
  explain(error) {
    return error.message;
  }

  /** The text of each id by itself. */
  pieces(ids) {
    return Array.from(ids, (id) => this.decode([id]));
  }
}

/** Words or characters: each that was known when the tokenizer was built is a token. */
class ListTokenizer extends Tokenizer {
  constructor(kind, vocab, what, others, cut) {
    super(kind, vocab);
    Object.assign(this, { what, cut, fix: `build the tokenizer from a text that has it, or use ${others}` });
  }

  /** The ids of a text. Throws Unknown, with the library's message, for the first word or character that has none. */
  encode(text) {
    return this.cut(text).map((token, i, all) => {
      const id = this.ids.get(token);
      if (id !== undefined) return id;
      const alike = this.alike(token), hint = alike.length ? `. Known words that begin like it: ${alike.join(", ")}` : "";
      const reason = `is not one of the ${this.vocab_size} known ones; ${this.fix}${hint}`;
      throw unknown(this.what, token, all.slice(0, i).join(""), reason);
    });
  }

  /** The known words that begin most like one without an id, five at most. */
  alike(word) {
    const letters = [...bare(word)], [first] = letters;
    if (first === undefined || this.kind !== "words") return [];
    const shared = (known) => {
      const differs = [...known].findIndex((letter, i) => letter !== letters[i]);
      return differs < 0 ? [...known].length : differs;
    };
    const found = this.vocab.filter((known) => known.startsWith(first) || known.startsWith(` ${first}`)).map(bare);
    return [...new Set(found)].sort((a, b) => shared(b) - shared(a)).slice(0, 5);
  }

  /** As `explained` of views/typed.py. text: what is typed; offers: whether to say what to type instead. */
  explain(error, text = "text", offers = true) {
    if (error.name !== "Unknown") return error.message;
    const { word } = error, own = bare(word), name = `“${shown(own || word)}”`;
    if (this.ids.has(` ${word}`)) return `The model knows ${name} only after a blank.`;
    const where = /\p{L}/u.test(own) ? `: at the beginning of a ${text} or after a quotation mark` : "";
    if (this.kind === "words" && this.ids.has(own)) return `The model knows ${name} only without a blank before it${where}.`;
    const problem = `The model knows only ${this.vocab_size.toLocaleString("en")} ${this.what}s, and not ${name}.`;
    if (!offers) return problem;
    const instead = this.instead(word).map((each) => `“${each}”`), last = instead.pop();
    const fix = last ? `Try ${instead.length ? `${instead.join(", ")} or ` : ""}${last}.` : "Leave it out.";
    return `${problem} ${fix}`;
  }

  /** Known words: the same in other letters, those that begin like it, or some that are common in a text. */
  instead(word) {
    const same = this.vocab.find((known) => bare(known).toLowerCase() === bare(word).toLowerCase());
    if (same !== undefined) return [bare(same)];
    const usual = this.vocab.filter((known) => /^ \p{Ll}{4,}$/u.test(known)).map(bare), alike = this.alike(word);
    if (alike.length || usual.length < SOME) return alike.slice(0, SOME);
    return Array.from({ length: SOME }, (_, i) => usual[Math.floor(((i + 1) * usual.length) / (SOME + 1))]);
  }

  decode(ids) {
    return this.tokens(ids).join("");
  }
}

/** Bytes, merged within pre-tokens; a special token is one id wherever it occurs. Without merges: single bytes. */
class BPETokenizer extends Tokenizer {
  constructor({ kind, vocab, merges, special_tokens }) {
    super(kind, vocab);
    const key = (first, second) => first * this.vocab_size + second;
    const ranks = new Map(merges.map((pair, rank) => [key(...pair.map((token) => this.ids.get(token))), rank]));
    this.rankOf = (first, second) => ranks.get(key(first, second));
    this.joined = merges.map((pair) => this.ids.get(pair.join("")));
    this.special = new Map(special_tokens.map((text) => [text, this.ids.get(utf8(text).join(""))]));
  }

  /** The ids of a text. Throws Unknown for half of a surrogate pair, the only thing that has none. */
  encode(text) {
    const half = text.search(/\p{Surrogate}/u); // with u a pair is one character
    if (half >= 0) throw unknown("character", text[half], text.slice(0, half), "is half of a surrogate pair and has no bytes; remove it");
    return preTokens(text, [...this.special.keys()]).flatMap((piece) =>
      this.special.get(piece) ?? applyMerges(utf8(piece).map((byte) => this.ids.get(byte)), this.rankOf, this.joined));
  }

  /** The text of ids; bytes that are not UTF-8 become U+FFFD. */
  decode(ids) {
    return FROM_UTF8.decode(Uint8Array.from(this.tokens(ids).join(""), (letter) => letter.charCodeAt(0)));
  }
}

/** The tokenizer of a record, which is what `to_dict` of the library's tokenizer gave. */
function tokenizer(record) {
  const bytes = () => Array.from({ length: 256 }, (_, byte) => String.fromCharCode(byte));
  switch (record.kind) {
    case "words": return new ListTokenizer("words", record.words, "word", "bpe or bytes", words);
    case "chars": return new ListTokenizer("chars", [...record.characters], "character", "bytes", (text) => [...text]);
    case "bytes": return new BPETokenizer({ kind: "bytes", vocab: bytes(), merges: [], special_tokens: [] });
    case "bpe": return new BPETokenizer(record);
    default: throw new Error(`the page has no tokenizer of the kind ${record.kind}; it has words, chars, bytes and bpe`);
  }
}
