// Tracing builds the real networks in a child process: only for runs the page was started with, and only when asked.
import { ask, byId } from "./dom.js";

let asked = 0;

export function showTrace(state, active) {
  byId("traced").replaceChildren();
  byId("trace").hidden = !(state.start.started || []).includes(active().named);
}

export function setUpTracing(state, active, place) {
  const button = byId("trace");
  button.addEventListener("click", async () => {
    const number = ++asked;
    button.disabled = true;
    try {
      const { job } = await ask("api/trace", { name: active().named, run: active().run, ...place() });
      for (;;) {
        const told = await ask(`api/trace?job=${job}`);
        if (number !== asked) return;
        byId("told").textContent = told.text;
        if (told.state !== "running") {
          byId("traced").innerHTML = told.drawn || "";  // drawn by the server, from escaped text
          return;
        }
        await new Promise((later) => setTimeout(later, 400));
      }
    } catch (error) {
      byId("told").textContent = error.message;
    } finally {
      button.disabled = false;
    }
  });
}
