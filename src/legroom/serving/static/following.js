// Following a training or a watch while it runs: the server sends what changed, drawn; the browser puts it in place.
import { ask, byId, make } from "./dom.js";

let source = null;

export function setUpFollowing(folders) {
  const tabs = [byId("tab-plan"), byId("tab-follow")];
  const choose = (tab) => {
    for (const each of tabs) {
      each.setAttribute("aria-selected", String(each === tab));
      each.tabIndex = each === tab ? 0 : -1;
      byId(each.getAttribute("aria-controls")).hidden = each !== tab;
    }
    if (tab.id === "tab-follow") look();
    else stop();
  };
  tabs.forEach((tab, at) => {
    tab.addEventListener("click", () => choose(tab));
    tab.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowRight" && event.key !== "ArrowLeft") return;
      const other = tabs[1 - at];
      other.focus();
      choose(other);
    });
  });
  list(folders);
  byId("folder").addEventListener("change", (event) => follow(event.target.value));
  if (location.hash.startsWith("#follow")) choose(tabs[1]);
}

function list(folders) {
  const select = byId("folder");
  const chosen = select.value;
  select.replaceChildren(...folders.map((name) => make("option", { value: name }, name)));
  if (!folders.length) select.append(make("option", { value: "" }, "none: start with legroom ui --folder DIR"));
  if (folders.includes(chosen)) select.value = chosen;
}

/** A training may have begun since the page was opened. */
async function look() {
  try { list((await ask("api/folders")).folders); } catch { /* the stream says what is wrong */ }
  follow(byId("folder").value);
}

function stop() {
  if (source) source.close();
  source = null;
}

function follow(id) {
  stop();
  if (!id) return;
  source = new EventSource(`api/follow?folder=${encodeURIComponent(id)}`);
  source.onmessage = (event) => {
    const told = JSON.parse(event.data);
    const words = byId("follow-verdict");
    if (words.textContent !== told.words) words.textContent = told.words;
    words.className = `words ${told.kind}`;
    byId("follow-body").innerHTML = told.body;  // drawn by the server, from escaped text
  };
  source.onerror = () => { byId("follow-verdict").textContent = "The connection is lost; trying again…"; };
}
