// StoryWorld in a page: the exact probability of every next word, and the words that determine it. The rules of the
// language come with the record, which `stories_record` in stories.py makes; this file only reads.

class StoryReader {
  constructor(record) {
    this.record = record;
    this.past = []; // the slot of each word in the sentences that are complete
    this.enter(-1, {});
  }

  /** Begin a scene: each of its sentences is one reading of what follows. `said`: the word of each role so far. */
  enter(scene, said) {
    const { scenes, sentences, slots, probs } = this.record;
    const ways = scenes.at(scene); // -1, the last one, is the opening
    this.complete = scene === -1 || ways[0][1] === -1;
    this.readings = ways.flatMap(([p, then, ...some]) =>
      some.map((n) => ({ p: probs[p], sentence: sentences[n].map((i) => slots[i]), then, said, at: 0 })));
  }

  /** The words that the next slot of a reading can take; all are equally likely. */
  choices({ sentence, at, said }) {
    const { classes, different, pronouns } = this.record;
    const { text = "", role, form, new: name } = sentence[at];
    if (name) return classes[name].filter((word) => word !== said[different[role]]).map((word) => text + word);
    if (!role) return [text];
    return [text + (form ? pronouns[form][said[role]] : said[role])];
  }

  /** Map(word -> probability) of every word that can come next. */
  probs() {
    const probs = new Map();
    for (const reading of this.readings) {
      const among = this.choices(reading);
      for (const word of among) probs.set(word, (probs.get(word) ?? 0) + reading.p / among.length);
    }
    return probs;
  }

  /** Read one more word and return its probability; a word of probability 0 is not read. */
  read(word) {
    const going = [];
    for (const reading of this.readings) {
      const among = this.choices(reading), slot = reading.sentence[reading.at];
      if (!among.includes(word)) continue;
      const said = slot.new ? { ...reading.said, [slot.role]: word.trimStart() } : reading.said;
      going.push({ ...reading, p: reading.p / among.length, said, at: reading.at + 1 });
    }
    if (!going.length) return 0;
    const total = going.reduce((sum, { p }) => sum + p, 0), [first] = going;
    this.complete = false;
    this.readings = going.map((reading) => ({ ...reading, p: reading.p / total }));
    if (first.at === first.sentence.length) { // no sentence is the beginning of another, so it is the only reading
      this.past.push(...first.sentence);
      this.enter(first.then, first.said);
    }
    return total;
  }

  /** For each word, the positions of the words up to it that determine the word after it; none where that one is new or
   * not yet decided. Null for a text that is not the beginning of one story. A line end before the story is a word. */
  told(words) {
    const reader = new StoryReader(this.record), first = Number(words[0] === "\n"), heard = words.slice(first);
    if (heard.slice(0, -1).includes("\n") || !heard.every((word) => reader.read(word))) return null;
    const [{ sentence, at }] = reader.readings; // any of them: on a word that is determined, all agree
    const slots = [...reader.past, ...sentence.slice(0, at + 1)], mentions = {};
    const tells = slots.map(({ role, kind }, place) => {
      const places = (kind && mentions[role]) || [];
      if (role) mentions[role] = [...(mentions[role] ?? []), first + place];
      return places;
    });
    return first ? tells : tells.slice(1);
  }
}
