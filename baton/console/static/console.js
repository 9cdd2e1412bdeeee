// Keeps a page up to date by server-sent events, and moves between rows by arrow keys. Pages work without it.
"use strict";

const main = document.querySelector("main[data-events]");
const live = document.getElementById("live");
let source = null;
let cursor = null;
let loading = false;
let pending = false;
let signedOut = false;

function say(text, lost) {
  live.hidden = !text;
  live.textContent = text;
  live.classList.toggle("lost", Boolean(lost));
}

// A session that is over is refused here, or sent by the proxy to where people sign in, often on another host.
async function fetchPage() {
  const options = { headers: { accept: "text/html" }, credentials: "same-origin" };
  const response = await fetch(location.href, { ...options, redirect: "manual" });
  if (response.type !== "opaqueredirect") return [401, 403].includes(response.status) ? null : response;
  return fetch(location.href, options).catch(() => null);
}

function leave() {
  signedOut = true;
  disconnect();
  say("signed out: ", true);
  const link = document.createElement("a");
  link.href = location.href;
  link.textContent = "sign in again";
  live.append(link);
}

// Replaces changed elements, but keeps focused fields and open details.
function replace(old, updated) {
  if (old.isEqualNode(updated) || old.contains(document.activeElement) && document.activeElement.matches("input, textarea, select")) return;
  const open = new Set([...old.querySelectorAll("details[open][id]")].map((element) => element.id));
  for (const element of updated.querySelectorAll("details[id]")) element.open = element.open || open.has(element.id);
  for (const element of updated.querySelectorAll("details[data-part]")) put(element, document.getElementById(element.id)?.querySelector(":scope > .part"));
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  const address = focused && focused.getAttribute("href");
  const focusedId = focused && focused.id;
  old.replaceWith(updated);
  const back = focusedId ? document.getElementById(focusedId) : address && [...updated.querySelectorAll("a")].find((element) => element.getAttribute("href") === address);
  if (back) back.focus({ preventScroll: true });
}

function put(details, part) {
  if (!part) return;
  details.querySelectorAll(":scope > :not(summary)").forEach((element) => element.remove());
  details.append(part);
}

// Shows a run inside the page of another. Without it, its link is there.
async function fill(details) {
  try {
    const response = await fetch(details.dataset.part, { headers: { accept: "text/html" }, credentials: "same-origin" });
    if (!response.ok) return;
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    put(details, document.adoptNode(page.querySelector(".part")));
  } catch { /* The link stays. */ }
}

document.addEventListener("toggle", ({ target }) => { if (target.open && target.dataset.part) fill(target); }, true);

async function load() {
  if (signedOut) return;
  if (loading) { pending = true; return; }
  loading = true;
  try {
    const response = await fetchPage();
    const page = response && new DOMParser().parseFromString(await response.text(), "text/html");
    if (response && !response.ok) throw new Error(page.querySelector("main h1")?.textContent || "unreachable");
    if (!page || !page.getElementById("main")) { leave(); return; }
    for (const updated of page.querySelectorAll("[data-live]")) {
      const old = main.querySelector(`[data-live="${CSS.escape(updated.dataset.live)}"]`);
      if (old) replace(old, document.adoptNode(updated));
    }
    document.title = page.title;
    say("live", false);
    document.dispatchEvent(new CustomEvent("baton:updated"));
  } catch (error) {
    say(error instanceof TypeError ? "unreachable" : error.message, true);
    setTimeout(load, 2000);
  } finally {
    loading = false;
    if (pending) { pending = false; load(); }
  }
}

function connect() {
  if (!main || source || document.hidden || signedOut) return;
  const address = new URL(main.dataset.events, location.href);
  if (cursor) address.searchParams.set("cursor", cursor);
  source = new EventSource(address);
  source.onopen = () => say("live", false);
  source.onerror = () => {
    if (!source || source.readyState !== EventSource.CLOSED) { say("unreachable", true); return; }
    disconnect(); // the console has refused, and says why on the page
    load().then(() => setTimeout(connect, 3000));
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
