"use strict";
// Everything that comes from a text or a graph becomes a text node: nothing in it is ever read as HTML.
const at = (id) => document.getElementById(id);

const made = (tag, text, name) => {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (name) element.className = name;
  return element;
};

const asked = async (path, options = {}) => {
  const headers = { ...(options.headers || {}) };
  if (at("token").value) headers.Authorization = `Bearer ${at("token").value}`;
  const answer = await fetch(path, { ...options, headers });
  const content = await answer.json().catch(() => ({ error: `the server answered ${answer.status}` }));
  if (!answer.ok) throw new Error(content.error || `the server answered ${answer.status}`);
  return content;
};

// As inference/attributes.py describes a mention, and in its words.
const ATTRIBUTES = ["negated", "family", "historical", "hypothetical"];
const DESCRIBED = [...ATTRIBUTES, "long_form", "part", "matched", "tied"];
const described = (mention) => {
  const tied = mention.entity != null && mention.candidates.length > 0 && mention.candidates[0].tied;
  const own = { ...mention, tied };
  return new Map(DESCRIBED.filter((name) => own[name]).map((name) => [name, own[name] === true ? "true" : own[name]]));
};
const WORDS = { negated: () => "not", long_form: (v) => `= ${v}`, part: (v) => `part: ${v}`, matched: (v) => `by ${v}` };
const inWords = (mention) => Array.from(described(mention), ([name, value]) => (WORDS[name] ? WORDS[name](value) : name));
const MEANINGS = { negated: "denied", family: "of a relative", historical: "of the past", hypothetical: "only supposed" };

const told = (error) => { at("error").textContent = error ? error.message : ""; };

const showEntity = async (id) => {
  at("entity").replaceChildren();
  const about = await asked(`entity?id=${encodeURIComponent(id)}`);
  const list = made("dl");
  const line = (term, text) => list.append(made("dt", term), made("dd", text));
  line("id", about.id);
  line("type", about.type || "-");
  line("names", about.names.join("; "));
  line("definition", about.definition || "-");
  for (const n of about.neighbours) line(n.direction === "out" ? `${n.relation} →` : `← ${n.relation}`, `${n.name} (${n.id})`);
  if (about.triples > about.neighbours.length) line("", `and ${about.triples - about.neighbours.length} more triples`);
  at("entity").replaceChildren(made("h2", about.name), list);
};

// One hue for each type, the same on every page.
const colour = (type) => `hsl(${Array.from(type).reduce((sum, c) => (sum * 31 + c.codePointAt(0)) % 360, 0)} 65% 32%)`;

// A key does what a click does: all can be reached with Tab.
const pressed = (element, act) => {
  element.tabIndex = 0;
  element.addEventListener("click", act);
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    act();
  });
};

// The types of the mentions shown, with their number; one that is unticked is read as plain text.
const showLegend = (mentions) => {
  const counts = new Map();
  for (const { type } of mentions) counts.set(type || "no type", (counts.get(type || "no type") || 0) + 1);
  const boxes = Array.from(counts).sort().map(([type, count]) => {
    const label = made("label");
    const box = made("input");
    box.type = "checkbox";
    box.checked = true;
    box.addEventListener("change", () => {
      document.querySelectorAll("mark").forEach((mark) => {
        if (mark.dataset.type !== type) return;
        mark.classList.toggle("off", !box.checked);
        mark.tabIndex = box.checked ? 0 : -1;
      });
    });
    const badge = made("span", type, "type");
    badge.style.setProperty("--type", colour(type));
    label.append(box, badge, document.createTextNode(` ${count}`));
    return label;
  });
  at("legend").replaceChildren(made("legend", "Types"), ...boxes);
  at("legend").hidden = !boxes.length;
};

// How marks look that are not simply present; nothing where there is none.
const showLooks = (mentions) => {
  const used = ATTRIBUTES.filter((name) => mentions.some((mention) => mention[name]));
  const items = used.map((name) => {
    const item = made("span", undefined, "look");
    const mark = made("span", "text", `mark ${name}`);
    mark.append(made("small", inWords({ [name]: true, candidates: [] })[0], "said"));
    item.append(mark, document.createTextNode(` ${MEANINGS[name]}`));
    return item;
  });
  at("looks").replaceChildren(...items);
  at("looks").hidden = !items.length;
};

// The mentions of one place: one, or the parts of a composite one.
const showMentions = (mentions, mark) => {
  document.querySelectorAll("mark.chosen").forEach((other) => other.classList.remove("chosen"));
  mark.classList.add("chosen");
  at("mention").hidden = false;
  at("surface").textContent = mentions[0].text;
  at("said").textContent = inWords({ ...mentions[0], part: null, matched: null, entity: null }).join(", ");
  at("entity").replaceChildren();
  const rows = mentions.flatMap((mention) => mention.candidates.map((candidate) => {
    const own = { part: mention.part, matched: candidate.matched, entity: candidate.entity, candidates: [candidate] };
    const row = made("tr");
    for (const text of [candidate.entity, candidate.name, inWords(own).join(", "), candidate.score.toFixed(3)]) row.append(made("td", text));
    pressed(row, () => showEntity(candidate.entity).catch(told));
    return row;
  }));
  at("candidates").replaceChildren(...rows);
  const first = mentions[0].entity || (mentions[0].candidates[0] || {}).entity;
  if (first) showEntity(first).catch(told);
};

const markOf = (mentions) => {
  const [first] = mentions;
  const mark = made("mark", first.text, first.entity ? "" : "nil");
  mark.classList.add(...ATTRIBUTES.filter((name) => first[name]));
  for (const name of ATTRIBUTES) if (first[name]) mark.append(made("small", inWords({ [name]: true, candidates: [] })[0], "said"));
  if (first.type) {
    const badge = made("small", first.type, "type");
    badge.style.setProperty("--type", colour(first.type));
    mark.append(badge);
  }
  mark.append(made("small", mentions.map((mention) => mention.entity || "NIL").join(" + ")));
  const sure = first.detector_score == null ? "" : ` (found with score ${first.detector_score.toFixed(3)})`;
  const meanings = mentions.map((mention) => [...inWords(mention), mention.name || "linked to nothing"].join(", "));
  mark.title = meanings.join("; ") + sure;
  mark.setAttribute("role", "button");
  mark.setAttribute("aria-label", `${first.text}: ${mark.title}`);
  mark.dataset.type = first.type || "no type";
  mark.style.setProperty("--type", colour(mark.dataset.type));
  pressed(mark, () => showMentions(mentions, mark));
  return mark;
};

// Mentions that share a place, in the order of the text; one inside another is in the table alone.
const placesOf = (mentions) => {
  const places = [];
  for (const mention of mentions) {
    const last = places.length ? places[places.length - 1] : null;
    if (last && mention.start === last[0].start && mention.end === last[0].end) last.push(mention);
    else if (!last || mention.start >= last[0].end) places.push([mention]);
  }
  return places;
};

const MANY = 200; // rows from which the table is closed at first
const showTable = (mentions) => {
  const rows = document.createDocumentFragment();
  for (const mention of mentions) {
    const row = made("tr");
    for (const text of [mention.text, mention.type, mention.entity || "NIL", mention.name, inWords(mention).join(", ")]) {
      row.append(made("td", text || ""));
    }
    rows.append(row);
  }
  at("mentions").replaceChildren(rows);
  at("all").open = mentions.length <= MANY;
  at("all").hidden = !mentions.length;
};

const showDocument = ({ text, mentions }) => {
  const characters = Array.from(text); // offsets count characters, not UTF-16 units
  const shown = document.createDocumentFragment();
  const places = placesOf(mentions);
  let place = 0;
  for (const own of places) {
    shown.append(characters.slice(place, own[0].start).join(""), markOf(own));
    place = own[0].end;
  }
  shown.append(characters.slice(place).join(""));
  at("result").replaceChildren(shown);
  showLegend(places.map((own) => own[0]));
  showLooks(mentions);
  showTable(mentions);
  at("mention").hidden = true;
};

const link = async () => {
  told(null);
  at("go").disabled = true;
  try {
    const body = JSON.stringify({ texts: [at("text").value] });
    const found = await asked("link", { method: "POST", headers: { "Content-Type": "application/json" }, body });
    showDocument(found.documents[0]);
  } catch (error) {
    told(error);
  } finally {
    at("go").disabled = false;
  }
};

// A file: its texts in requests that the server accepts, one after the other; what came of them as files to keep.
const AT_ONCE = 32;

const textsOf = (name, content) => {
  const lines = content.replace(/^\ufeff/, "").split(/\r?\n/).map((line, i) => [i + 1, line]).filter(([, line]) => line.trim());
  return lines.map(([number, line]) => {
    if (!name.endsWith(".jsonl")) return { id: String(number), text: line };
    let record;
    try { record = JSON.parse(line); } catch { throw new Error(`${name}, line ${number}: not JSON`); }
    if (!record || typeof record.text !== "string") throw new Error(`${name}, line ${number}: expected an object with "text"`);
    return { id: String(record.id ?? number), text: record.text };
  });
};

const COLUMNS = ["start", "end", "text", "type", "entity", "name", "score"];
const rowOf = (id, mention) => {
  const own = described(mention);
  return [id, ...COLUMNS.map((name) => mention[name]), ...DESCRIBED.map((name) => own.get(name))];
};
// A text that a spreadsheet would read as a formula begins with an apostrophe; a number stays one.
const cell = (value) => {
  const own = value == null ? "" : String(value);
  const text = typeof value !== "number" && /^[=+\-@\t\r]/.test(own) ? `'${own}` : own;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

const kept = (link, name, type, content) => {
  if (link.href) URL.revokeObjectURL(link.href);
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.hidden = false;
};

let stopped = false;
const linkFile = async (name, content) => {
  told(null);
  stopped = false;
  const texts = textsOf(name, content);
  const found = [];
  let count = 0;
  at("file-result").hidden = at("stop").hidden = false;
  at("as-jsonl").hidden = at("as-csv").hidden = true;
  at("progress").max = texts.length || 1;
  at("progress").value = 0;
  at("count").textContent = "";
  try {
    while (found.length < texts.length && !stopped) {
      const some = texts.slice(found.length, found.length + AT_ONCE);
      const body = JSON.stringify({ texts: some.map(({ text }) => text) });
      const answer = await asked("link", { method: "POST", headers: { "Content-Type": "application/json" }, body });
      answer.documents.forEach(({ mentions }, i) => {
        found.push({ ...some[i], mentions });
        count += mentions.length;
      });
      at("progress").value = found.length;
      at("count").textContent = `${found.length} of ${texts.length} texts, ${count} mentions`;
    }
  } finally {
    at("stop").hidden = true;
    const base = name.replace(/\.[^.]*$/, "");
    kept(at("as-jsonl"), `${base}.linked.jsonl`, "application/jsonl", found.map((one) => JSON.stringify(one) + "\n").join(""));
    const rows = found.flatMap(({ id, mentions }) => mentions.map((mention) => rowOf(id, mention)));
    const table = [["id", ...COLUMNS, ...DESCRIBED], ...rows];
    kept(at("as-csv"), `${base}.linked.csv`, "text/csv", table.map((row) => row.map(cell).join(",") + "\n").join(""));
  }
  if (found.length) showDocument(found[0]);
};

at("file").addEventListener("change", () => {
  const [file] = at("file").files;
  if (file) file.text().then((content) => linkFile(file.name, content)).catch(told);
});
at("stop").addEventListener("click", () => { stopped = true; });
at("form").addEventListener("submit", (event) => { event.preventDefault(); link(); });
at("text").addEventListener("keydown", (event) => { if (event.key === "Enter" && event.ctrlKey) { event.preventDefault(); link(); } });
// A link to a sentence: …/#text=Marfan%20syndrome, and &mention=1 for what its first mention may mean.
const wanted = new URLSearchParams(location.hash.slice(1));
if (wanted.get("text")) {
  at("text").value = wanted.get("text");
  link().then(() => document.querySelectorAll("mark")[Number(wanted.get("mention")) - 1]?.click());
}
asked("health").then((health) => {
  at("about").textContent = `${health.chain}, ${health.entities.toLocaleString()} entities`;
  at("secret").hidden = !health.token;
  at("examples").replaceChildren(...(health.examples.length ? ["Try: "] : []), ...health.examples.map((text) => {
    const button = made("button", text, "example");
    button.type = "button";
    button.addEventListener("click", () => { at("text").value = text; link(); });
    return button;
  }));
  at("examples").hidden = !health.examples.length;
}).catch(told);
