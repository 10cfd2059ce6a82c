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

const showMention = (mention, mark) => {
  document.querySelectorAll("mark.chosen").forEach((other) => other.classList.remove("chosen"));
  mark.classList.add("chosen");
  at("mention").hidden = false;
  at("surface").textContent = (mention.negated ? "not " : "") + [mention.text, mention.long_form, mention.part].filter(Boolean).join(" = ");
  at("entity").replaceChildren();
  at("candidates").replaceChildren(...mention.candidates.map((candidate) => {
    const row = made("tr");
    row.append(made("td", candidate.entity), made("td", candidate.name), made("td", candidate.score.toFixed(3)));
    pressed(row, () => showEntity(candidate.entity).catch(told));
    return row;
  }));
  const first = mention.entity || (mention.candidates[0] || {}).entity;
  if (first) showEntity(first).catch(told);
};

const showDocument = ({ text, mentions }) => {
  const characters = Array.from(text); // offsets count characters, not UTF-16 units
  const parts = [];
  const shown = [];
  let place = 0;
  for (const mention of mentions) {
    if (mention.start < place) continue; // inside the one before
    shown.push(mention);
    parts.push(document.createTextNode(characters.slice(place, mention.start).join("")));
    const mark = made("mark", mention.text, mention.entity ? "" : "nil");
    if (mention.type) {
      const badge = made("small", mention.type, "type");
      badge.style.setProperty("--type", colour(mention.type));
      mark.append(badge);
    }
    mark.append(made("small", mention.entity || "NIL"));
    const sure = mention.detector_score == null ? "" : ` (found with score ${mention.detector_score.toFixed(3)})`;
    mark.title = (mention.name || "linked to nothing") + sure;
    mark.dataset.type = mention.type || "no type";
    mark.style.setProperty("--type", colour(mark.dataset.type));
    pressed(mark, () => showMention(mention, mark));
    parts.push(mark);
    place = mention.end;
  }
  parts.push(document.createTextNode(characters.slice(place).join("")));
  at("result").replaceChildren(...parts);
  showLegend(shown);
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
      answer.documents.forEach(({ mentions }, i) => found.push({ ...some[i], mentions }));
      at("progress").value = found.length;
      const mentions = found.reduce((sum, one) => sum + one.mentions.length, 0);
      at("count").textContent = `${found.length} of ${texts.length} texts, ${mentions} mentions`;
    }
  } finally {
    at("stop").hidden = true;
    const base = name.replace(/\.[^.]*$/, "");
    kept(at("as-jsonl"), `${base}.linked.jsonl`, "application/jsonl", found.map((one) => JSON.stringify(one) + "\n").join(""));
    const rows = found.flatMap(({ id, mentions }) => mentions.map((m) => [id, ...COLUMNS.map((c) => m[c])]));
    kept(at("as-csv"), `${base}.linked.csv`, "text/csv", [["id", ...COLUMNS], ...rows].map((r) => r.map(cell).join(",") + "\n").join(""));
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
