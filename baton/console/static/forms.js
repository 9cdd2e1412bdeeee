// Sends forms so that nothing typed is lost while the network or the server is away, checks patches as they are typed,
// and says when what a form decides about has changed. Forms work without it.
"use strict";

(() => {
  const AGAIN = 3000;
  const main = document.getElementById("main");
  let waiting = null;
  let shownAt = main.querySelector(".state")?.dataset.now;

  function notice(form, text, lost) {
    let told = form.querySelector(":scope > .sending");
    if (!told) {
      told = document.createElement("p");
      told.className = "notice sending";
      told.setAttribute("role", "status");
      form.append(told);
    }
    told.textContent = text;
    told.hidden = !text;
    told.classList.toggle("bad", Boolean(lost));
  }

  function hold(form, held) {
    for (const button of form.querySelectorAll("button")) button.disabled = held;
    form.toggleAttribute("data-sending", held);
  }

  // What the person decided is taken once; it is bound to what they saw, so that sending it again does no harm.
  async function send(form, body) {
    clearTimeout(waiting);
    waiting = null;
    hold(form, true);
    notice(form, "Sending…", false);
    let answer;
    try {
      answer = await fetch(form.getAttribute("action"), { method: "POST", body, credentials: "same-origin" });
    } catch {
      keep(form, body, navigator.onLine ? "The console is unreachable." : "You are offline.");
      return;
    }
    const text = await answer.text().catch(() => "");
    if (answer.redirected && answer.status < 500) {
      location.assign(answer.url);
    } else if (answer.status >= 500 || answer.status === 429) {
      const page = new DOMParser().parseFromString(text, "text/html");
      const told = page.querySelector("[data-told]") || page.querySelector("main h1");
      const why = told ? `${told.textContent}.` : "The console is unreachable.";
      keep(form, body, answer.status === 429 ? "Too many at once." : why);
    } else {
      hold(form, false);
      answered(form, answer, text);
    }
  }

  function keep(form, body, why) {
    notice(form, `${why} What you entered is kept, and is sent as soon as that is possible.`, true);
    const again = () => {
      removeEventListener("online", again);
      if (form.isConnected && form.hasAttribute("data-sending")) send(form, body);
    };
    addEventListener("online", again);
    waiting = setTimeout(again, AGAIN);
  }

  // Shows the page that says why a form did not count, with what was typed.
  function answered(form, answer, text) {
    const page = new DOMParser().parseFromString(text, "text/html");
    const made = page.getElementById("main");
    if (!made) {
      notice(form, text.slice(0, 500) || `The console answered ${answer.status}.`, true);
      return;
    }
    main.replaceChildren(...document.adoptNode(made).childNodes);
    document.title = page.title;
    shownAt = main.querySelector(".state")?.dataset.now;
    ready();
  }

  function ready() {
    main.querySelector("[data-focus]")?.focus();
    for (const form of main.querySelectorAll("form[data-send]")) {
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        if (!form.hasAttribute("data-sending")) send(form, new URLSearchParams(new FormData(form, event.submitter)));
      });
    }
    for (const text of main.querySelectorAll("textarea[data-check]")) check(text);
  }

  function check(area) {
    const told = document.getElementById(`${area.id}-check`);
    let timer = null;
    let asked = 0;
    const ask = async () => {
      const mine = ++asked;
      const body = new URLSearchParams({ patch: area.value, csrf: area.form.elements.csrf.value });
      try {
        const answer = await fetch(area.dataset.check, { method: "POST", body, credentials: "same-origin" });
        if (mine !== asked || !answer.ok) return;
        const { findings } = await answer.json();
        told.textContent = findings.join("\n") || "This patch fits the pipeline's rules.";
        told.classList.toggle("good", !findings.length);
        area.setAttribute("aria-invalid", String(findings.length > 0));
      } catch {
        told.textContent = "";
      }
    };
    area.addEventListener("input", () => {
      clearTimeout(timer);
      asked += 1;
      if (area.value.trim()) timer = setTimeout(ask, 400);
      else told.textContent = "";
    });
  }

  // The page was brought up to date around the form: the form itself, with what was typed, is left alone.
  document.addEventListener("baton:updated", () => {
    const now = main.querySelector(".state")?.dataset.now;
    const form = main.querySelector("form[data-seen]");
    if (now === undefined || form?.hasAttribute("data-sending")) return;
    if (!form) {
      if (now !== shownAt) location.reload();
      return;
    }
    form.hidden = now === "settled";
    const changed = now !== "settled" && now !== "trouble" && now !== form.dataset.seen;
    for (const button of form.querySelectorAll("button")) button.disabled = changed;
    if (changed) notice(form, "What is shown has changed since you looked. Load the page again to decide on it.", true);
  });

  // A page that the browser kept may hold a form that was sent.
  addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });

  ready();
})();
