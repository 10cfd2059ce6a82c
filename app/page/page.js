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

// An address within the page: what it shows is in its part after #, so that it can be sent to others.
const addressOf = (values) => `#${new URLSearchParams(values)}`;
const LONGEST = 2000; // characters of an address
const keepAddress = (values) => {
  const address = addressOf(values);
  document.body.classList.remove("alone");
  history.replaceState(null, "", address.length <= LONGEST ? address : "#");
};

const entityLink = (id, text) => {
  const link = made("a", text);
  link.href = addressOf({ entity: id });
  return link;
};

const SVG = "http://www.w3.org/2000/svg";
const drawn = (tag, values, text) => {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(values)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
};

// The first neighbours around their entity; the list beside it has all and their relations.
const AROUND = 10;
const SHORTEST = 22;
const shortened = (text) => (text.length > SHORTEST ? `${text.slice(0, SHORTEST - 1)}…` : text);
const drawNeighbours = (about) => {
  const around = about.neighbours.slice(0, AROUND);
  const picture = drawn("svg", { viewBox: "-320 -150 640 300", role: "img", "aria-label": `${about.name} and ${around.length} of its neighbours` });
  around.forEach((one, number) => {
    const angle = (2 * Math.PI * number) / around.length - Math.PI / 2;
    const [x, y] = [210 * Math.cos(angle), 115 * Math.sin(angle)];
    picture.append(drawn("line", { x1: 0, y1: 0, x2: x, y2: y }));
    picture.append(drawn("text", { x, y, "text-anchor": "middle", dy: y < 0 ? -4 : 14 }, shortened(one.name)));
  });
  picture.append(drawn("circle", { cx: 0, cy: 0, r: 5 }));
  picture.append(drawn("text", { x: 0, y: 0, dy: -9, "text-anchor": "middle", class: "centre" }, shortened(about.name)));
  return picture;
};

// Names by language, where the graph has several.
const namesByLanguage = (names) => {
  const spoken = new Map();
  for (const { name, language } of names) spoken.set(language, [...(spoken.get(language) || []), name]);
  return spoken;
};

const showEntity = async (id) => {
  at("entity").replaceChildren();
  const about = await asked(`entity?id=${encodeURIComponent(id)}`);
  let list = made("dl");
  const facts = list;
  const line = (term, ...texts) => {
    const value = made("dd");
    value.append(...texts);
    list.append(made("dt", term), value);
  };
  const place = made(about.source ? "a" : "span", about.id);
  if (about.source) {
    place.href = about.source;
    place.rel = "noreferrer";
  }
  line("id", place);
  line("type", about.type || "-");
  const spoken = namesByLanguage(about.names);
  for (const [language, names] of spoken) line(spoken.size > 1 ? `names, ${language || "no language"}` : "names", names.join("; "));
  line("definition", about.definition || "-");
  if (about.same_as.length) line("same as", about.same_as.join(", "));
  list = made("dl"); // the neighbours, below their drawing
  for (const n of about.neighbours) {
    line(n.direction === "out" ? `${n.relation} →` : `← ${n.relation}`, entityLink(n.id, n.name), ` (${n.id})`);
  }
  if (about.triples > about.neighbours.length) line("more", `${about.triples - about.neighbours.length} triples`);
  const title = made("h2", about.name);
  title.tabIndex = -1;
  const self = entityLink(about.id, "address of this entity");
  self.className = "self";
  at("entity").replaceChildren(title, self, facts, ...(about.neighbours.length ? [drawNeighbours(about), list] : []));
};

const search = async (name) => {
  told(null);
  const found = await asked(`search?name=${encodeURIComponent(name)}`);
  const rows = found.entities.map((one) => {
    const row = made("li");
    row.append(entityLink(one.id, one.name), document.createTextNode(` ${one.id}${one.type ? `, ${one.type}` : ""}${one.found === one.name ? "" : `: ${one.found}`}`));
    return row;
  });
  const more = found.count - found.entities.length;
  at("found-title").textContent = found.count ? `${found.count.toLocaleString()} with “${name}”${more ? `, the first ${found.entities.length}` : ""}` : `No entity has a name with “${name}”`;
  at("found-entities").replaceChildren(...rows);
  at("found").hidden = false;
};

// One hue for each type, the same on every page.
const colour = (type) => `hsl(${Array.from(type).reduce((sum, c) => (sum * 31 + c.codePointAt(0)) % 360, 0)} 60% 25%)`;

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
    addLabel(mark, inWords({ [name]: true, candidates: [] })[0], "said");
    item.append(mark, document.createTextNode(` ${MEANINGS[name]}`));
    return item;
  });
  at("looks").replaceChildren(...items);
  at("looks").hidden = !items.length;
};

// A word in small after a marked text. The space before it is for who hears the page: a button is
// named by its content.
const addLabel = (mark, text, look) => {
  const label = made("small", text, look);
  mark.append(made("small", " ", "gap"), label);
  return label;
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
  for (const name of ATTRIBUTES) if (first[name]) addLabel(mark, inWords({ [name]: true, candidates: [] })[0], "said");
  if (first.type) {
    addLabel(mark, first.type, "type").style.setProperty("--type", colour(first.type));
  }
  addLabel(mark, mentions.map((mention) => mention.entity || "NIL").join(" + "));
  const sure = first.detector_score == null ? "" : ` (found with score ${first.detector_score.toFixed(3)})`;
  const meanings = mentions.map((mention) => [...inWords(mention), mention.name || "linked to nothing"].join(", "));
  mark.title = meanings.join("; ") + sure;
  mark.setAttribute("role", "button");
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
  at("all").classList.toggle("plain", !mentions.some((mention) => inWords(mention).length));
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
  at("empty").textContent = mentions.length ? "" : "No mention of an entity of the graph.";
  at("empty").hidden = mentions.length > 0;
  at("entity").replaceChildren();
  showLegend(places.map((own) => own[0]));
  showLooks(mentions);
  showTable(mentions);
  at("mention").hidden = true;
};

// On a phone the answer is below what is seen.
const inView = () => at(at("empty").hidden ? "result" : "empty").scrollIntoView({ block: "nearest" });

const link = async () => {
  told(null);
  at("go").disabled = true;
  try {
    const body = JSON.stringify({ texts: [at("text").value] });
    const found = await asked("link", { method: "POST", headers: { "Content-Type": "application/json" }, body });
    at("documents").hidden = true;
    keepAddress({ text: at("text").value });
    showDocument(found.documents[0]);
    inView();
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
  showTexts(found);
};

// The texts of a file, to choose from; of many, the first.
const LISTED = 500;
const showTexts = (found) => {
  const items = found.slice(0, LISTED).map((one) => {
    const item = made("li");
    const start = Array.from(one.text).slice(0, 60).join("");
    const button = made("button", `${one.id}: ${start} (${one.mentions.length})`, "example");
    button.type = "button";
    button.addEventListener("click", () => {
      at("texts").querySelectorAll("button").forEach((other) => other.removeAttribute("aria-current"));
      button.setAttribute("aria-current", "true");
      showDocument(one);
      inView();
    });
    item.append(button);
    return item;
  });
  if (found.length > LISTED) items.push(made("li", `${found.length - LISTED} more are in the saved files`));
  at("texts").replaceChildren(...items);
  at("documents").hidden = found.length < 2;
  if (found.length) items[0].querySelector("button").click();
};

at("file").addEventListener("change", () => {
  const [file] = at("file").files;
  if (file) file.text().then((content) => linkFile(file.name, content)).catch(told);
});
at("stop").addEventListener("click", () => { stopped = true; });
at("form").addEventListener("submit", (event) => { event.preventDefault(); link(); });
at("text").addEventListener("keydown", (event) => { if (event.key === "Enter" && event.ctrlKey) { event.preventDefault(); link(); } });
// What an address asks for: …/#text=Marfan%20syndrome (&mention=1: what its first mention may mean), #entity=…, #find=…
const follow = async () => {
  const wanted = new URLSearchParams(location.hash.slice(1));
  try {
    document.body.classList.toggle("alone", wanted.has("entity"));
    if (wanted.get("entity")) {
      await showEntity(wanted.get("entity"));
      at("entity").querySelector("h2").focus();
    } else if (wanted.get("find")) {
      at("name").value = wanted.get("find");
      await search(wanted.get("find"));
    } else if (wanted.get("text")) {
      at("text").value = wanted.get("text");
      await link();
      document.querySelectorAll("mark")[Number(wanted.get("mention")) - 1]?.click();
    }
  } catch (error) {
    told(error);
  }
};
at("search").addEventListener("submit", (event) => {
  event.preventDefault();
  const name = at("name").value.trim();
  if (!name) return;
  keepAddress({ find: name });
  search(name).catch(told);
});
window.addEventListener("hashchange", follow);
follow();
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
