// The page: which runs there are, what was turned, and what the server says about it.
import { ask, byId, latest, make, offer, putAt, settled } from "./dom.js";
import { drawControls, turnAll } from "./controls.js";
import { decode, encode } from "./link.js";
import { clearFit, refreshFit, setUpFitting } from "./fitting.js";
import { leaveFollowing, listFolders, lookForFolders } from "./following.js";
import { setUpTracing, showTrace } from "./tracing.js";
import { cardOptions, setUpStart } from "./start.js";
import { setUpViews, showView } from "./views.js";
import { openResultLink, setUpResult, showResult } from "./result.js";

const MOST_RUNS = 6;
const state = { runs: [], active: 0, place: { gpu: "", ram: "", reserve: "0" }, start: null };
const active = () => state.runs[state.active];

// ---- what the server is asked ----------------------------------------------------------------------------------------

/** The place as the server reads it: a card by name, the CPU, or whatever this machine has. */
function place(gpu = state.place.gpu) {
  const { ram, reserve } = state.place;
  return { ram: ram.trim(), reserve: Number(reserve), ...(gpu === "cpu" ? { device: "cpu" } : gpu ? { gpu } : {}) };
}

const plan = latest(async () => {
  const entry = active();
  if (!entry) return;
  try {
    const told = await ask("api/plan", { runs: state.runs.map((each) => each.run), active: state.active, bill: byId("bill-box").open, ...place() });
    if (entry === active()) show(told);
  } catch (error) {
    say(byId("verdict"), error.message, "error");
    document.body.classList.add("waits");
    drawn();
  }
});

const check = settled(async () => {
  const entry = active();
  try {
    const told = await ask("api/check", { run: entry.run, ...place() });
    if (entry === active()) showFindings(told);
  } catch {
    byId("findings").replaceChildren();  // the verdict says what is wrong
  }
}, 250);

const keep = settled(() => history.replaceState(null, "", encode(state)), 200);

function refresh() {
  plan();
  check();
  keep();
  refreshFit();
}

// ---- what is shown ---------------------------------------------------------------------------------------------------

function say(element, text, kind) {
  if (element.textContent !== text) element.textContent = text;  // a live region speaks when it changes
  element.className = `words ${kind}`;
}

function show(told) {
  const own = told.runs[state.active];
  document.body.classList.remove("waits");
  const guessed = guesses(active()).join(" and ");
  const words = own.verdict.words.replace(/^Unknown/, guessed ? "is unknown" : "Unknown");
  say(byId("verdict"), guessed ? `If ${guessed}, it ${words[0].toLowerCase()}${words.slice(1)}` : words, { true: "good", false: "bad" }[own.verdict.fits] || "");
  // drawn by the server with the same functions as its reports, from escaped text
  byId("host").innerHTML = told.host;
  byId("gpu").innerHTML = told.gpu || "";
  byId("gpu-name").hidden = !told.gpu;
  byId("bill").innerHTML = told.bill || "";
  byId("savings").innerHTML = own.drawn;
  drawn();
}

/** For measurements: how often something was drawn. */
function drawn() {
  document.body.dataset.drawn = Number(document.body.dataset.drawn || 0) + 1;
}

function showFindings({ findings, fine }) {
  const rows = findings.map((found) => make("li", { class: found.severity }, make("span", {}, found.message),
    make("small", {}, [found.hint, found.code && `${found.code} ${found.name}`].filter(Boolean).join(" · "))));
  const good = fine.slice(0, 3).map((each) => make("li", {}, make("span", {}, `✓ ${each.what}`), make("small", {}, each.why)));
  byId("findings").replaceChildren(...(rows.length + good.length ? [...rows, ...good] : [make("li", {}, "No findings.")]));
}

function showRuns() {
  const chips = state.runs.map((entry, at) => make("div", { class: at === state.active ? "chip active" : "chip" },
    make("button", { type: "button", "aria-pressed": String(at === state.active), onclick: () => activate(at) }, entry.name),
    state.runs.length > 1 ? make("button", { type: "button", "aria-label": `Remove ${entry.name}`, onclick: () => remove(at) }, "×") : null));
  const more = make("button", { type: "button", class: "plain", onclick: duplicate, disabled: state.runs.length >= MOST_RUNS }, "+ compare");
  byId("chosen").replaceChildren(...chips, more);
}

function showActive() {
  const entry = active();
  byId("result-name").textContent = `${entry.name}: ${entry.algo}`;
  byId("about").textContent = entry.description || "";
  byId("run").value = entry.named || "";
  showAssumed(entry);
  clearFit();
  drawControls(byId("controls"), entry, (key, value) => {
    putAt(entry.run, key, value);
    if (key.startsWith("env.spaces.")) delete entry.assumed;
    entry.unknown = (entry.unknown || []).filter((each) => each !== key);
    showAssumed(entry);
    refresh();
  });
  showTrace(state, active);
  showRuns();
}

/** What had to be assumed about a run, since its file does not say it. */
function guesses(entry) {
  const rest = (entry.unknown || []).length;
  return [...(entry.assumed ? [`observations are ${entry.assumed}`] : []), ...(rest ? [`${entry.unknown.slice(0, 2).join(", ")}${rest > 2 ? " …" : ""} ${rest > 1 ? "have their defaults" : "has its default"}`] : [])];
}

function showAssumed(entry) {
  const told = [];
  if (entry.assumed) told.push(`This file does not define what ${entry.run.env.id || "the environment"} observes. Set the shape and type under “Observations”.`);
  if ((entry.unknown || []).length) told.push(`This file does not set ${entry.unknown.join(", ")}. Set the values if they are not the defaults.`);
  byId("assumed").hidden = !told.length;
  byId("assumed").textContent = told.join(" ");
}

// ---- which runs ------------------------------------------------------------------------------------------------------

/** An entry: the run as it is turned, as it was, and the settings that it has. `named` is what the server knows it by. */
function entryOf(shown, named) {
  return { ...shown, named, base: shown.run, run: structuredClone(shown.run) };
}

async function named(name) {
  return entryOf(await ask(`api/run?name=${encodeURIComponent(name)}`), name);
}

function activate(at) {
  state.active = at;
  showActive();
  refresh();
  showView("plan");
}

/** Show the runs that the page begins with; what the server says about them came along. */
function beginWith(plan) {
  showActive();
  show(plan);
  check();
  showView("plan");
}

function remove(at) {
  state.runs.splice(at, 1);
  activate(Math.min(state.active > at ? state.active - 1 : state.active, state.runs.length - 1));
}

function duplicate() {
  const entry = active();
  const number = state.runs.filter((each) => each.name.startsWith(entry.name.replace(/ \(\d+\)$/, ""))).length + 1;
  const copy = { ...entry, run: structuredClone(entry.run), copy: true };
  copy.name = copy.run.name = `${entry.name.replace(/ \(\d+\)$/, "")} (${number})`;
  copy.base = { ...structuredClone(entry.base), name: copy.name };
  state.runs.push(copy);
  activate(state.runs.length - 1);
}

async function choose(name) {
  await attempt(async () => {
    state.runs[state.active] = await named(name);
    activate(state.active);
  });
}

/** Show what the server made of a text: runs in the planner, anything else as a result of its own. */
async function take(found, name, text) {
  if (!found.runs) {
    showResult(found, name, text, place);
    showView("result");
    byId("result-head").focus();
    return;
  }
  const shown = found.runs.slice(0, MOST_RUNS).map((each) => entryOf(each, null));
  state.runs.splice(state.active, 1, ...shown);
  state.runs.length = Math.min(state.runs.length, MOST_RUNS);
  showPlace();
  activate(state.active);
  byId("verdict").focus();
  byId("told").textContent = found.runs.length > shown.length ? `${name} holds ${found.runs.length} runs; the first ${shown.length} are shown` : "";
}

async function takeNamed(name) {
  state.runs[state.active] = await named(name);
  activate(state.active);
  byId("verdict").focus();
}

async function attempt(work) {
  try { await work(); } catch (error) { say(byId("verdict"), error.message, "error"); }
}

// ---- setting up ------------------------------------------------------------------------------------------------------

function fillChoices({ workloads, started, cards, machine }) {
  const option = (name) => make("option", { value: name }, name);
  const groups = workloads.map((each) => make("optgroup", { label: each.name }, ...each.runs.map(option)));
  if (started.length) groups.unshift(make("optgroup", { label: "started with" }, ...started.map(option)));
  byId("run").append(make("option", { value: "" }, "your own, or choose…"), ...groups);
  byId("card").append(...cardOptions(cards, machine));
  byId("ram").placeholder = machine.available;
}

function showPlace() {
  byId("card").value = state.place.gpu;
  byId("ram").value = state.place.ram;
  byId("reserve").value = state.place.reserve;
}

async function restore(told) {
  for (const each of told.r.slice(0, MOST_RUNS)) {
    if (each.n) {
      const entry = await named(each.n);
      if (each.t && each.t[""]) entry.run = each.t[""];
      else turnAll(entry, each.t || {});
      if (entry.run.name !== entry.name && typeof entry.run.name === "string") entry.name = entry.run.name;
      state.runs.push(entry);
    } else {
      const entry = entryOf((await ask("api/read", { run: each.d })).runs[0], null);
      if (typeof each.s === "string") entry.assumed = each.s;
      if (Array.isArray(each.u)) entry.unknown = each.u.map(String);
      state.runs.push(entry);
    }
  }
  Object.assign(state.place, told.p || {});
  state.active = Math.min(Number(told.a) || 0, state.runs.length - 1);
}

async function begin() {
  const start = await ask("api/start");
  state.start = start;
  fillChoices(start);
  setUpStart(start, take, takeNamed);
  setUpResult();
  setUpViews((name) => { if (name === "follow") lookForFolders(); else leaveFollowing(); });
  setUpFitting(active, place, (run) => { active().run = run; showActive(); refresh(); });
  listFolders(start);
  listen();
  byId("version").textContent = `legroom ${start.version}`;
  const told = decode(location.hash);
  if (told) await attempt(() => restore(told));
  const fresh = !state.runs.length;
  if (fresh) state.runs = start.shown.map((each) => entryOf(each, each.name));
  showPlace();
  if (fresh && start.plan) beginWith(start.plan);
  else if (state.runs.length) activate(state.active);
  if (location.hash.startsWith("#follow")) showView("follow");
  if (location.hash.startsWith("#r=")) await openResultLink(location.hash, take);
  performance.mark("interactive");
  document.body.dataset.ready = "yes";
}

function listen() {
  byId("run").addEventListener("change", (event) => event.target.value && choose(event.target.value));
  byId("card").addEventListener("change", (event) => { state.place.gpu = event.target.value; refresh(); });
  byId("ram").addEventListener("input", settled(() => { state.place.ram = byId("ram").value; refresh(); }, 150));
  byId("reserve").addEventListener("change", (event) => { state.place.reserve = event.target.value; refresh(); });
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  byId("bill-box").addEventListener("toggle", plan);
  byId("download").addEventListener("click", () => attempt(async () => {
    const entry = active();
    offer(`${entry.name.replace(/[^\w.-]+/g, "-")}.yaml`, await ask("api/file", { run: entry.run }));
  }));
  byId("link").addEventListener("click", async () => {
    history.replaceState(null, "", encode(state));
    try { await navigator.clipboard.writeText(location.href); byId("told").textContent = "The link is copied. It opens in any legroom ui."; }
    catch { byId("told").textContent = "Copying is blocked: copy the address of this page instead."; }
  });
  window.addEventListener("hashchange", () => { if (decode(location.hash) || location.hash.startsWith("#r=")) location.reload(); });  // a link was pasted
  setUpTracing(state, active, place);
}

begin().catch((error) => { byId("start-told").textContent = error.message; byId("start-told").hidden = false; });
