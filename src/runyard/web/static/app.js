// Updates the page: the server sends the live part as rendered HTML, and this script changes only the nodes that differ.
// No library, no inline script.
"use strict";

(() => {
  const EVENTS = "/api/v1/events?view=page";
  const SILENCE = 30000; // the server sends an event at least every ten seconds
  const RETRY = 2000;
  const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

  const live = document.getElementById("live");
  const word = document.getElementById("live-word");
  let skew = 0; // how far the server's clock is ahead of this one, in seconds
  let source = null;
  let watchdog = 0;

  function show(state, text) {
    if (live.dataset.state === state) return;
    live.dataset.state = state;
    word.textContent = text;
  }

  function ago(seconds) {
    for (const [size, unit] of UNITS) {
      if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}`;
    }
    return "now";
  }

  function tick() {
    const now = Date.now() / 1000 + skew;
    for (const time of document.querySelectorAll("time[data-t]")) {
      const text = ago(Math.max(0, now - Number(time.dataset.t)));
      if (time.textContent !== text) time.textContent = text;
    }
  }

  // ── updating the old tree with the new one ────────────────────────────────────────────────────

  function matches(old, fresh) {
    if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) return false;
    if (old.nodeType !== Node.ELEMENT_NODE) return true;
    return (old.dataset?.key ?? "") === (fresh.dataset?.key ?? "");
  }

  function attributes(old, fresh) {
    for (const { name, value } of [...fresh.attributes]) {
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    for (const { name } of [...old.attributes]) {
      if (!fresh.hasAttribute(name) && name !== "class") old.removeAttribute(name);
    }
    if (!fresh.hasAttribute("class") && old.className && !old.classList.contains("fresh")) {
      old.removeAttribute("class");
    }
  }

  function morph(old, fresh) {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
      return;
    }
    if (old.isEqualNode(fresh)) return;
    attributes(old, fresh);
    const keyed = new Map();
    for (const child of old.children) {
      if (child.dataset?.key) keyed.set(child.dataset.key, child);
    }
    let place = old.firstChild;
    for (const wanted of [...fresh.childNodes]) {
      const known = wanted.dataset?.key ? keyed.get(wanted.dataset.key) : null;
      if (known && matches(known, wanted)) {
        if (known === place) place = place.nextSibling;
        else old.insertBefore(known, place);
        morph(known, wanted);
      } else if (place && !wanted.dataset?.key && matches(place, wanted)) {
        const here = place;
        place = place.nextSibling;
        morph(here, wanted);
      } else {
        if (wanted.dataset?.key) arrive(wanted);
        old.insertBefore(wanted, place);
      }
    }
    while (place) {
      const next = place.nextSibling;
      place.remove();
      place = next;
    }
  }

  function arrive(element) {
    element.classList.add("fresh");
    element.addEventListener("animationend", () => element.classList.remove("fresh"), { once: true });
  }

  function update(html) {
    const holder = document.createElement("template");
    holder.innerHTML = html;
    const fresh = holder.content.getElementById("app");
    const app = document.getElementById("app");
    if (!fresh || !app) return;
    if (fresh.dataset.version !== app.dataset.version) {
      location.reload(); // the server has another version of the page
      return;
    }
    clock(fresh.dataset.at);
    morph(app, fresh);
    document.title = app.dataset.title;
    tick();
  }

  function clock(at) {
    if (Number(at) > 0) skew = Number(at) - Date.now() / 1000;
  }

  // ── the connection to the server ─────────────────────────────────────────────────────────────────

  function received() {
    show("live", "live");
    clearTimeout(watchdog);
    watchdog = setTimeout(lost, SILENCE);
  }

  function lost() {
    show("reconnecting", "reconnecting");
    clearTimeout(watchdog);
    source?.close();
    source = null;
    setTimeout(reconnect, RETRY);
  }

  // EventSource hides the status code: an expired session needs the login page, any other failure a retry.
  function reconnect() {
    fetch("/api/v1/overview", { method: "HEAD", cache: "no-store" }).then(
      (response) => (response.status === 401 ? location.reload() : connect()),
      () => setTimeout(reconnect, RETRY),
    );
  }

  function connect() {
    if (source) return;
    source = new EventSource(EVENTS);
    source.addEventListener("page", (event) => { received(); update(event.data); });
    source.addEventListener("beat", (event) => { received(); clock(event.data); });
    source.addEventListener("error", lost);
    clearTimeout(watchdog);
    watchdog = setTimeout(lost, SILENCE);
  }

  clock(document.getElementById("app").dataset.at);
  show("connecting", "connecting");
  setInterval(tick, 1000);
  tick();
  connect();
  addEventListener("pagehide", () => source?.close());
  addEventListener("pageshow", (event) => { if (event.persisted) { source = null; connect(); } });
})();
