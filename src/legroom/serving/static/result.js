// A result that is no run to be turned: an explained error.
import { ask, byId } from "./dom.js";
import { opened, squeezed } from "./link.js";
import { offerPicture } from "./picture.js";

const LONGEST_LINK = 60_000;  // letters; browsers take more, what people send it with often does not
let shown = null;

export function showResult(found, name, text) {
  shown = { name, text, title: "An error, explained" };
  byId("result-head").textContent = shown.title;
  byId("result-body").innerHTML = found.explanation;  // drawn by the server, from escaped text
  byId("result-told").textContent = "";
}

export function setUpResult() {
  const say = (text) => { byId("result-told").textContent = text; };
  byId("result-picture").addEventListener("click", () => offerPicture(byId("result-body"), shown.title).then(
    () => say("The picture is saved."), (error) => say(error.message)));
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
