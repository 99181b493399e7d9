// What the pages do by themselves: follow events, tell the time, guard what cannot be undone. Nothing here makes markup
// of what a sandbox said: rows come from the server, rendered and escaped.
"use strict";

const all = (selector, within = document) => Array.from(within.querySelectorAll(selector));

// Theme: the choice lives in a cookie, so that the server renders the next page in it at once.
function switchTheme(button) {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  document.cookie = `kennel-theme=${root.dataset.theme}; path=/console; max-age=31536000; samesite=strict`;
  nameTheme(button);
}
function nameTheme(button) {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  button.textContent = dark ? "Light" : "Dark";
  button.title = dark ? "Show in light colours" : "Show in dark colours";
}

// Times: `3 minutes ago` stays true.
function age(seconds) {
  if (seconds < 5) return "just now";
  for (const [limit, word, unit] of [[60, "second", 1], [3600, "minute", 60], [86400, "hour", 3600], [5184000, "day", 86400]]) {
    if (seconds < limit) {
      const number = Math.floor(seconds / unit);
      return `${number} ${word}${number === 1 ? "" : "s"} ago`;
    }
  }
  return null;
}
function tick() {
  if (document.hidden) return;
  for (const time of all("time[datetime]")) {
    const said = age(Math.max(0, (Date.now() - Date.parse(time.dateTime)) / 1000));
    if (said && said !== time.textContent) time.textContent = said;
  }
}

// Events: one connection while the page is seen; a hidden page gives it back, browsers allow six to a server.
const MOST_ROWS = 400;
function follow(list) {
  let source = null;
  let after = list.dataset.after;
  const open = () => {
    if (source || document.hidden) return;
    const address = new URL(list.dataset.live, location.href);
    address.searchParams.set("after", after);
    source = new EventSource(address);
    source.addEventListener("row", (event) => {
      if (Number(event.lastEventId) <= Number(after)) return;
      after = event.lastEventId;
      const holder = document.createElement("template");
      holder.innerHTML = JSON.parse(event.data);
      all(".none", list).forEach((one) => one.remove());
      list.prepend(holder.content);
      while (list.children.length > MOST_ROWS) list.lastElementChild.remove();
      document.body.dispatchEvent(new CustomEvent("kennel:news"));
    });
  };
  const close = () => { if (source) source.close(); source = null; };
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", open);
  open();
}

// What cannot be undone stays closed until the name stands there.
function guard(input) {
  const button = input.form.querySelector("button");
  const look = () => { button.disabled = input.value.trim() !== input.dataset.confirm; };
  input.addEventListener("input", look);
  look();
}

// A command in progress: its seconds, and a way to stop it, which ends it in the sandbox too.
function command(form) {
  const [status, elapsed, stop] = ["p.running", "[data-elapsed]", "[data-abort]"].map((s) => form.querySelector(s));
  let clock = null;
  const end = () => { clearInterval(clock); clock = null; status.hidden = true; stop.hidden = true; };
  form.addEventListener("htmx:before:request", () => {
    const began = Date.now();
    const show = () => { elapsed.textContent = `${Math.floor((Date.now() - began) / 1000)} s`; };
    show();
    clock = setInterval(show, 500);
    status.hidden = stop.hidden = false;
  });
  form.addEventListener("htmx:finally:request", () => {
    end();
    const input = form.querySelector("[name=command]");
    input.focus();
    input.select();
  });
  stop.addEventListener("click", () => form.dispatchEvent(new CustomEvent("htmx:abort")));
}

function copier(block) {
  if (!navigator.clipboard || block.querySelector("button")) return;
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(block.querySelector("code").textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  block.append(button);
}

function prepare(within = document) {
  all("[data-theme-switch]", within).forEach((button) => {
    button.hidden = false;
    nameTheme(button);
    button.addEventListener("click", () => switchTheme(button));
  });
  all("[data-live]", within).forEach(follow);
  all("[data-confirm]", within).forEach(guard);
  all("[data-command]", within).forEach(command);
  all(".cmd", within).forEach(copier);
}

document.addEventListener("DOMContentLoaded", () => {
  prepare();
  setInterval(tick, 5000);
  // Not scrollIntoView: the next Tab would go on from there and not from the page's beginning.
  for (const here of all("nav [aria-current]")) {
    const row = here.parentElement;
    row.scrollLeft = here.offsetLeft - row.offsetLeft - (row.clientWidth - here.clientWidth) / 2;
  }
});
// A page nobody sees asks for nothing by itself.
document.addEventListener("htmx:config:request", (event) => {
  if (document.hidden && event.detail.ctx.sourceEvent?.type === "every") event.preventDefault();
});
// A refusal stays until somebody does something; what a page asks for by itself does not take it away.
document.addEventListener("htmx:before:request", (event) => {
  const by = event.detail.ctx?.sourceEvent?.type ?? "";
  if (by === "every" || by.startsWith("kennel:")) return;
  all("#notices > *").forEach((one) => one.classList.contains("problem") && one.remove());
});
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea, select");
  if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const search = document.querySelector("[data-slash]") || document.querySelector("#command");
  if (search) { event.preventDefault(); search.focus(); search.select(); }
});
