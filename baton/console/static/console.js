// Keeps a page up to date by server-sent events, and moves between rows by arrow keys. Pages work without it.
"use strict";

const main = document.querySelector("main[data-events]");
const live = document.getElementById("live");
let source = null;
let cursor = null;
let loading = false;
let pending = false;

function say(text, lost) {
  live.hidden = !text;
  live.textContent = text;
  live.classList.toggle("lost", Boolean(lost));
}

// Replaces changed elements, but keeps focused fields and open details.
function replace(old, updated) {
  if (old.isEqualNode(updated) || old.contains(document.activeElement) && document.activeElement.matches("input, textarea, select")) return;
  const open = new Set([...old.querySelectorAll("details[open][id]")].map((element) => element.id));
  for (const element of updated.querySelectorAll("details[id]")) element.open = element.open || open.has(element.id);
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  const address = focused && focused.getAttribute("href");
  const focusedId = focused && focused.id;
  old.replaceWith(updated);
  const back = focusedId ? document.getElementById(focusedId) : address && [...updated.querySelectorAll("a")].find((element) => element.getAttribute("href") === address);
  if (back) back.focus({ preventScroll: true });
}

async function load() {
  if (loading) { pending = true; return; }
  loading = true;
  try {
    const response = await fetch(location.href, { headers: { accept: "text/html" }, credentials: "same-origin" });
    if (response.status === 401) { say("signed out", true); return; }
    if (!response.ok) throw new Error(response.statusText);
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    for (const updated of page.querySelectorAll("[data-live]")) {
      const old = main.querySelector(`[data-live="${CSS.escape(updated.dataset.live)}"]`);
      if (old) replace(old, document.adoptNode(updated));
    }
    document.title = page.title;
    say("live", false);
    document.dispatchEvent(new CustomEvent("baton:updated"));
  } catch {
    say("unreachable", true);
    setTimeout(load, 2000);
  } finally {
    loading = false;
    if (pending) { pending = false; load(); }
  }
}

function connect() {
  if (!main || source || document.hidden) return;
  const address = new URL(main.dataset.events, location.href);
  if (cursor) address.searchParams.set("cursor", cursor);
  source = new EventSource(address);
  source.onopen = () => say("live", false);
  source.onerror = () => {
    say("unreachable", true);
    if (source && source.readyState === EventSource.CLOSED) { disconnect(); setTimeout(connect, 3000); }
  };
  source.addEventListener("changed", (event) => { cursor = event.lastEventId; load(); });
  source.addEventListener("lost", (event) => { say("the Temporal server is unreachable", true); cursor = event.lastEventId || cursor; });
  source.addEventListener("ended", (event) => { cursor = event.lastEventId; disconnect(); load().then(() => say("", false)); });
}

function disconnect() {
  if (source) source.close();
  source = null;
}

// A browser has few connections per host, so a hidden page closes its own and catches up later.
document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : connect()));
addEventListener("online", () => { disconnect(); connect(); load(); });
addEventListener("offline", () => say("offline", true));

document.addEventListener("keydown", (event) => {
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  const row = event.target.closest && event.target.closest("[data-row]");
  if (!row) return;
  const rows = [...document.querySelectorAll("[data-row]")];
  const next = rows[rows.indexOf(row) + (event.key === "ArrowDown" ? 1 : -1)];
  if (next) { event.preventDefault(); next.focus(); }
});

connect();
