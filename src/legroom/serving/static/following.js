// Following a training or a watch while it runs: the server sends what changed, drawn; the browser puts it in place.
import { ask, byId, make } from "./dom.js";

const EVERY_MS = 5000;  // a training may have begun since
let source = null;
let followed = null;
let looking = 0;

/** List the folders, newest first; where there are none, say how to get some. */
export function listFolders({ folders, roots }) {
  const focused = document.activeElement?.dataset?.folder;
  const rows = folders.map((each) => make("li", {},
    make("button", { type: "button", class: "example", "data-folder": each.name, "aria-pressed": String(each.name === followed), onclick: () => follow(each.name) },
      make("b", {}, each.name), make("span", { class: "soft" }, ` ${each.kind}, ${each.state}; last written ${each.ago}`))));
  const told = folders.length
    ? [make("h2", {}, "Trainings and watches"), make("p", { class: "soft" }, `In ${roots.join(", ")}, newest first. Choose one to see its memory live.`), make("ul", { class: "examples folders" }, ...rows)]
    : empty(roots);
  byId("follow-list").replaceChildren(...told);
  if (focused) byId("follow-list").querySelector(`[data-folder="${CSS.escape(focused)}"]`)?.focus();
}

function empty(roots) {
  const where = roots.length
    ? `This page looks in ${roots.join(", ")} and one level below. No training or watch has written there yet; the list updates every few seconds.`
    : "This page was started without --folder, so it has no folder to look in.";
  return [make("h2", {}, "Nothing to follow yet"), make("p", {}, where),
    make("p", {}, "A training or a watched command writes its memory to a folder, and this view shows it live:"),
    make("pre", { class: "log", tabindex: 0 }, "legroom train run.yaml --out runs/first\nlegroom watch --out runs/watched -- python train.py\nlegroom ui --folder runs")];
}

export async function lookForFolders() {
  clearTimeout(looking);
  try {
    const told = await ask("api/folders");
    listFolders(told);
    const first = told.folders[0];
    if (first && !source) follow(told.folders.some((each) => each.name === followed) ? followed : first.name);
  } catch { /* the stream says what is wrong */ }
  if (!byId("follow").hidden) looking = setTimeout(lookForFolders, EVERY_MS);
}

export function leaveFollowing() {
  clearTimeout(looking);
  if (source) source.close();
  source = null;
}

function follow(name) {
  if (source) source.close();
  followed = name;
  for (const each of byId("follow-list").querySelectorAll("[data-folder]")) each.setAttribute("aria-pressed", String(each.dataset.folder === name));
  const words = byId("follow-verdict");
  words.hidden = false;
  source = new EventSource(`api/follow?folder=${encodeURIComponent(name)}`);
  source.onmessage = (event) => {
    const told = JSON.parse(event.data);
    if (words.textContent !== told.words) words.textContent = told.words;
    words.className = `words ${told.kind}`;
    byId("follow-body").innerHTML = told.body;  // drawn by the server, from escaped text
  };
  source.onerror = () => { words.textContent = "Connection lost; reconnecting…"; };
}
