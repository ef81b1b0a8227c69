// A result that is no run to be turned: an explained error, or a program that is asked about.
import { ask, byId, make } from "./dom.js";
import { opened, squeezed } from "./link.js";
import { answered } from "./tracing.js";

const LONGEST_LINK = 60_000;  // letters; browsers take more, what people send it with often does not
let shown = null;

export function showResult(found, name, text, place) {
  shown = { name, text, title: found.command ? "A program" : "An error, explained" };
  byId("result-head").textContent = shown.title;
  byId("result-told").textContent = "";
  if (found.command) byId("result-body").replaceChildren(...program(found, place));
  else byId("result-body").innerHTML = found.explanation;  // drawn by the server, from escaped text
}

/** A command, which is executed once its button is pressed, not when a link brings it. */
function program({ command, folder }, place) {
  const drawn = make("div", {});
  const card = byId("card").cloneNode(true);
  card.id = "program-card";
  card.value = byId("card").value;
  const button = make("button", { type: "button", class: "main" }, "Execute it");
  button.addEventListener("click", async () => {
    button.disabled = true;
    const say = (words) => { byId("result-told").textContent = words; };
    try {
      const told = await answered({ command, ...place(card.value) }, say);
      if (told === null) return;
      say("");
      drawn.innerHTML = told.drawn;  // drawn by the server, from escaped text
    } catch (error) {
      say(error.message);
    } finally {
      button.disabled = false;
    }
  });
  return [make("p", {}, make("code", {}, command)),
    make("p", {}, `This command will be executed on this machine, in ${folder}, for up to a minute on a simulated GPU. Files that it writes there are discarded; what it sends over the network is sent.`),
    make("div", { class: "field" }, make("label", { for: card.id }, "GPU"), card), make("div", { class: "actions" }, button), drawn];
}

export function setUpResult() {
  const say = (text) => { byId("result-told").textContent = text; };
  byId("result-link").addEventListener("click", async () => {
    const packed = await squeezed({ name: shown.name, text: shown.text });
    if (packed.length > LONGEST_LINK) { say("Too long for a link: send the file itself, and drop it on any legroom ui."); return; }
    history.replaceState(null, "", `#r=${packed}`);
    try { await navigator.clipboard.writeText(location.href); say("The link is copied. It opens in any legroom ui."); }
    catch { say("Copying is blocked: copy the address of this page instead."); }
  });
}

export async function openResultLink(hash, take) {
  const { name, text } = await opened(hash.slice(3));
  await take(await ask("api/read", { name: String(name), text: String(text) }), String(name), String(text));
}
