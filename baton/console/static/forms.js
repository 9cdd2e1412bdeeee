// Sends forms without losing input while the network or the server is down, checks patches while typing, and reports
// when the subject of a form has changed. Forms work without it.
"use strict";

(() => {
  const RETRY_MS = 3000;
  const main = document.getElementById("main");
  let waiting = null;
  let shownState = main.querySelector(".state")?.dataset.now;

  function notice(form, text, lost) {
    let note = form.querySelector(":scope > .sending");
    if (!note) {
      note = document.createElement("p");
      note.className = "notice sending";
      note.setAttribute("role", "status");
      form.append(note);
    }
    note.textContent = text;
    note.hidden = !text;
    note.classList.toggle("bad", Boolean(lost));
  }

  function hold(form, busy) {
    for (const button of form.querySelectorAll("button")) button.disabled = busy;
    form.toggleAttribute("data-sending", busy);
  }

  // A decision is bound to what the person saw, so sending it again is harmless.
  async function send(form, body) {
    clearTimeout(waiting);
    waiting = null;
    hold(form, true);
    notice(form, "Sending…", false);
    let response;
    try {
      response = await fetch(form.getAttribute("action"), { method: "POST", body, credentials: "same-origin" });
    } catch {
      keep(form, body, navigator.onLine ? "The console is unreachable." : "You are offline.");
      return;
    }
    const text = await response.text().catch(() => "");
    if (response.redirected && response.status < 500) {
      location.assign(response.url);
    } else if (response.status >= 500 || response.status === 429) {
      const page = new DOMParser().parseFromString(text, "text/html");
      const message = page.querySelector("[data-told]") || page.querySelector("main h1");
      const why = message ? `${message.textContent}.` : "The console is unreachable.";
      keep(form, body, response.status === 429 ? "Too many at once." : why);
    } else {
      hold(form, false);
      showResponse(form, response, text);
    }
  }

  function keep(form, body, why) {
    notice(form, `${why} What you entered is kept, and is sent as soon as that is possible.`, true);
    const retry = () => {
      removeEventListener("online", retry);
      if (form.isConnected && form.hasAttribute("data-sending")) send(form, body);
    };
    addEventListener("online", retry);
    waiting = setTimeout(retry, RETRY_MS);
  }

  // Shows the page with the rejected form and its inputs.
  function showResponse(form, response, text) {
    const page = new DOMParser().parseFromString(text, "text/html");
    const newMain = page.getElementById("main");
    if (!newMain) {
      notice(form, text.slice(0, 500) || `The console answered ${response.status}.`, true);
      return;
    }
    main.replaceChildren(...document.adoptNode(newMain).childNodes);
    document.title = page.title;
    shownState = main.querySelector(".state")?.dataset.now;
    ready();
  }

  function ready() {
    document.dispatchEvent(new CustomEvent("baton:shown"));
    main.querySelector("[data-focus]")?.focus();
    for (const form of main.querySelectorAll("form[data-send]")) {
      form.addEventListener("input", () => form.setAttribute("data-touched", ""));
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        if (!form.hasAttribute("data-sending")) send(form, new URLSearchParams(new FormData(form, event.submitter)));
      });
    }
    for (const text of main.querySelectorAll("textarea[data-check]")) check(text);
  }

  function check(area) {
    const output = document.getElementById(`${area.id}-check`);
    let timer = null;
    let latest = 0;
    const ask = async () => {
      const number = ++latest;
      const body = new URLSearchParams({ patch: area.value, csrf: area.form.elements.csrf.value });
      try {
        const response = await fetch(area.dataset.check, { method: "POST", body, credentials: "same-origin" });
        if (number !== latest || !response.ok) return;
        const { findings } = await response.json();
        output.textContent = findings.join("\n") || "This patch fits the pipeline's rules.";
        output.classList.toggle("good", !findings.length);
        area.setAttribute("aria-invalid", String(findings.length > 0));
      } catch {
        output.textContent = "";
      }
    };
    area.addEventListener("input", () => {
      clearTimeout(timer);
      latest += 1;
      if (area.value.trim()) timer = setTimeout(ask, 400);
      else output.textContent = "";
    });
  }

  // The page around the form was updated; the form keeps its inputs.
  document.addEventListener("baton:updated", () => {
    const now = main.querySelector(".state")?.dataset.now;
    const form = main.querySelector("form[data-seen]");
    if (now === undefined || form?.hasAttribute("data-sending")) return;
    if (!form) {
      if (now !== shownState) location.reload();
      return;
    }
    const late = main.querySelector("[data-overtaken]");
    if (late) late.hidden = !(now === "settled" && form.hasAttribute("data-touched"));
    form.hidden = now === "settled";
    const changed = now !== "settled" && now !== "trouble" && now !== form.dataset.seen;
    for (const button of form.querySelectorAll("button")) button.disabled = changed;
    if (changed) notice(form, "What is shown has changed since you looked. Load the page again to decide on it.", true);
  });

  // A page from the browser's cache may contain a form that was already sent.
  addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });

  ready();
})();
