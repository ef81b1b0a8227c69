// What runs in a child process, only when asked: the real networks of a run that the page was started with, its fit
// with trusted code, a program. The key is in the address that `legroom ui` printed; without it nothing is executed.
import { ask, byId } from "./dom.js";

const found = /[#&]key=([\w-]+)/.exec(location.hash);
if (found) {
  sessionStorage.setItem("legroom-key", found[1]);
  history.replaceState(null, "", location.pathname + location.search + location.hash.replace(found[0], ""));
}
let asked = 0;

/** Ask for a command and wait for what it says; null once another was asked for. `tell(text)` says how far it is. */
export async function answered(body, tell) {
  const number = ++asked;
  const { job } = await ask("api/job", body, { "x-legroom-key": sessionStorage.getItem("legroom-key") || "" });
  for (;;) {
    const told = await ask(`api/job?job=${job}`);
    if (number !== asked) return null;
    if (told.state === "failed") throw new Error(told.text);
    if (told.state === "done") return told;
    tell(told.text);
    await new Promise((later) => setTimeout(later, 400));
  }
}

export const trusted = () => !byId("trust-box").hidden && byId("trust").checked;

export function showTrace(state, active) {
  byId("traced").replaceChildren();
  byId("trust").checked = false;
  byId("trace").hidden = byId("trust-box").hidden = !(state.start.started || []).includes(active().named);
}

export function setUpTracing(state, active, place) {
  const button = byId("trace");
  button.addEventListener("click", async () => {
    button.disabled = true;
    const tell = (text) => { byId("told").textContent = text; };
    try {
      const told = await answered({ name: active().named, run: active().run, trust: trusted(), ...place() }, tell);
      if (told === null) return;
      tell(`Traced in ${told.seconds} s.`);
      byId("traced").innerHTML = told.drawn;  // drawn by the server, from escaped text
    } catch (error) {
      tell(error.message);
    } finally {
      button.disabled = false;
    }
  });
}
