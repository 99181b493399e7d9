// A process's log, live: what it wrote is put on the page as text alone.
"use strict";

const MOST = 1 << 20;

function readLog(lines) {
  const told = document.querySelector("[data-told]");
  let after = lines.dataset.after;
  let source = null;
  let over = "over" in lines.dataset;
  let shown = lines.textContent.length;

  const add = (text, kind) => {
    const stay = lines.scrollHeight - lines.scrollTop - lines.clientHeight < 60;
    const last = lines.lastElementChild;
    if (last && last.className === kind && last.textContent.length < 8192) last.append(text);
    else {
      const one = document.createElement("span");
      one.className = kind;
      one.textContent = text;
      lines.append(one);
    }
    shown += text.length;
    // A page that is left open must not grow for ever.
    while (shown > MOST && lines.children.length > 1) {
      shown -= lines.firstElementChild.textContent.length;
      lines.firstElementChild.remove();
    }
    if (stay) lines.scrollTop = lines.scrollHeight;
  };
  const end = (words) => {
    over = true;
    close();
    told.textContent = words;
    document.body.dispatchEvent(new CustomEvent("kennel:news"));
  };
  const open = () => {
    if (source || over || document.hidden) return;
    const address = new URL(lines.dataset.log, location.href);
    address.searchParams.set("after", after);
    source = new EventSource(address);
    source.onopen = () => { told.textContent = "live"; };
    source.onerror = () => {
      if (source && source.readyState === EventSource.CLOSED) end("gone: the sandbox slept, or you may not look any more");
    };
    const hear = (kind, then) => source.addEventListener(kind, (event) => {
      if (event.lastEventId) after = event.lastEventId;
      then(JSON.parse(event.data));
    });
    hear("piece", (words) => add(words.text, words.stream));
    hear("missed", (words) => add(`\n… ${words.bytes} bytes are gone\n`, "dim"));
    hear("over", (words) => {
      end(words.said);
      document.querySelector("[data-state]").textContent = words.said;
    });
  };
  const close = () => { if (source) source.close(); source = null; };
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", open);
  lines.scrollTop = lines.scrollHeight;
  open();
}

document.addEventListener("DOMContentLoaded", () => document.querySelectorAll("[data-log]").forEach(readLog));
