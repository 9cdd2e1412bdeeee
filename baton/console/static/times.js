// Shows times in the reader's zone, and keeps deadlines counting down. Pages work without it: their text is relative,
// or UTC.
"use strict";

(() => {
  const TICK_MS = 15000;
  const SOON_SECONDS = 3600;
  const zone = new Intl.DateTimeFormat("en-GB", {
    year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
    hourCycle: "h23", timeZoneName: "short",
  });
  const seen = new WeakMap();

  function absolute(at) {
    const parts = Object.fromEntries(zone.formatToParts(at).map((part) => [part.type, part.value]));
    return `${parts.year}-${parts.month}-${parts.day} ${parts.hour}:${parts.minute}:${parts.second} ${parts.timeZoneName}`;
  }

  // As `format_rough_duration` of the server.
  function rough(seconds) {
    for (const [unit, size, least] of [["d", 86400, 2], ["h", 3600, 2], ["min", 60, 1]]) {
      if (seconds >= least * size) return `${Math.floor(seconds / size)} ${unit}`;
    }
    return `${Math.floor(seconds)} s`;
  }

  function show(element) {
    const at = new Date(element.dateTime);
    if (Number.isNaN(at.getTime())) return;
    if (!seen.has(element)) {
      seen.set(element, performance.now());
      if (element.title) element.title = absolute(at);
      else element.textContent = absolute(at);
    }
    if (element.dataset.left === undefined) return;
    // By the server's clock: the reader's may be wrong.
    const left = Number(element.dataset.left) - (performance.now() - seen.get(element)) / 1000;
    element.textContent = left > 0 ? `in ${rough(left)}` : `${rough(-left)} ago`;
    element.classList.toggle("soon", left <= SOON_SECONDS);
  }

  function showAll() {
    for (const element of document.querySelectorAll("time[datetime]")) show(element);
  }

  for (const name of ["baton:updated", "baton:shown"]) document.addEventListener(name, showAll);
  setInterval(showAll, TICK_MS);
  showAll();
})();
