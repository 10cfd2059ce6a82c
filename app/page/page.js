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

const showMention = (mention, mark) => {
  document.querySelectorAll("mark.chosen").forEach((other) => other.classList.remove("chosen"));
  mark.classList.add("chosen");
  at("mention").hidden = false;
  at("surface").textContent = mention.long_form ? `${mention.text} = ${mention.long_form}` : mention.text;
  at("entity").replaceChildren();
  at("candidates").replaceChildren(...mention.candidates.map((candidate) => {
    const row = made("tr");
    row.append(made("td", candidate.entity), made("td", candidate.name), made("td", candidate.score.toFixed(3)));
    row.tabIndex = 0;
    row.addEventListener("click", () => showEntity(candidate.entity).catch(told));
    return row;
  }));
  const first = mention.entity || (mention.candidates[0] || {}).entity;
  if (first) showEntity(first).catch(told);
};

const showDocument = ({ text, mentions }) => {
  const characters = Array.from(text); // offsets count characters, not UTF-16 units
  const parts = [];
  let place = 0;
  for (const mention of mentions) {
    if (mention.start < place) continue; // inside the one before
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
    mark.tabIndex = 0;
    mark.addEventListener("click", () => showMention(mention, mark));
    mark.addEventListener("keydown", (event) => { if (event.key === "Enter") showMention(mention, mark); });
    parts.push(mark);
    place = mention.end;
  }
  parts.push(document.createTextNode(characters.slice(place).join("")));
  at("result").replaceChildren(...parts);
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
}).catch(told);
