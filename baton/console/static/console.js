// Keeps a page up to date by server-sent events, and moves between rows by arrow keys. Pages work without it.
"use strict";

const main = document.querySelector("main[data-events]");
const live = document.getElementById("live");
let source = null;
let cursor = null;
let loading = false;
let again = false;

function say(text, lost) {
  live.hidden = !text;
  live.textContent = text;
  live.classList.toggle("lost", Boolean(lost));
}

// Puts what is new in place of what it was, and leaves alone what has the focus, is open, or did not change.
function replace(old, made) {
  if (old.isEqualNode(made) || old.contains(document.activeElement) && document.activeElement.matches("input, textarea, select")) return;
  const open = new Set([...old.querySelectorAll("details[open][id]")].map((one) => one.id));
  for (const one of made.querySelectorAll("details[id]")) one.open = one.open || open.has(one.id);
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  const address = focused && focused.getAttribute("href");
  const named = focused && focused.id;
  old.replaceWith(made);
  const back = named ? document.getElementById(named) : address && [...made.querySelectorAll("a")].find((one) => one.getAttribute("href") === address);
  if (back) back.focus({ preventScroll: true });
}

async function load() {
  if (loading) { again = true; return; }
  loading = true;
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" }, credentials: "same-origin" });
    if (answer.status === 401) { say("signed out", true); return; }
    if (!answer.ok) throw new Error(answer.statusText);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const made of page.querySelectorAll("[data-live]")) {
      const old = main.querySelector(`[data-live="${CSS.escape(made.dataset.live)}"]`);
      if (old) replace(old, document.adoptNode(made));
    }
    document.title = page.title;
    say("live", false);
    document.dispatchEvent(new CustomEvent("baton:updated"));
  } catch {
    say("unreachable", true);
    setTimeout(load, 2000);
  } finally {
    loading = false;
    if (again) { again = false; load(); }
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

// A browser has few connections to one host: a page that nobody sees gives its own back, and catches up later.
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
