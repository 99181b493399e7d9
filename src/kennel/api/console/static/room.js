// A room's talk: rows come from the server, rendered and escaped; what passes by is put on the page as text alone.
"use strict";

function talk(list) {
  const queue = document.querySelector("[data-queue]");
  let after = list.dataset.after;
  let source = null;
  let closed = false;
  const commands = new Map();

  const atEnd = () => list.scrollHeight - list.scrollTop - list.clientHeight < 60;
  const keepEnd = (change) => {
    const stay = atEnd();
    change();
    if (stay) list.scrollTop = list.scrollHeight;
  };
  const piece = (name, kind, words) => {
    const one = document.createElement(name);
    one.className = kind;
    if (words !== undefined) one.textContent = words;
    return one;
  };
  const passing = (id, kind) => {
    let one = Array.from(list.children).find((row) => row.dataset.passing === id);
    if (!one) {
      one = piece("li", `said ${kind}`);
      one.dataset.passing = id;
      list.append(one);
    }
    return one;
  };
  const drop = (id) => Array.from(list.children).filter((row) => row.dataset.passing === id).forEach((row) => row.remove());

  const heard = {
    row(words) {
      keepEnd(() => {
        if (words.type === "room/cleanup-requested") list.replaceChildren();
        if (words.type === "room/command-started") commands.set(words.command, words.turn);
        if (!words.html) return;
        list.querySelectorAll(".none").forEach((one) => one.remove());
        const answering = Array.from(list.children).find((one) => one.dataset.passing === `turn ${words.turn}`);
        const holder = document.createElement("template");
        holder.innerHTML = words.html;
        if (words.role === "user" && answering) list.insertBefore(holder.content, answering);
        else list.append(holder.content);
        if (words.role !== "user") {
          // The reply has the outputs of its commands.
          drop(`turn ${words.turn}`);
          for (const [id, of] of commands) if (of === words.turn) drop(`command ${id}`), commands.delete(id);
        }
        while (list.children.length > 400) list.firstElementChild.remove();
      });
      if (words.type.startsWith("room/member")) heard.presence();
      if (["room/sandbox-assigned", "room/shell-saved", "room/cleaned"].includes(words.type)) {
        document.body.dispatchEvent(new CustomEvent("kennel:place"));
        shelf();
      }
    },
    delta(words) {
      keepEnd(() => {
        const id = `turn ${words.turnId}`;
        if (words.end) return drop(id);
        const one = passing(id, "agent now");
        if (!one.firstChild) one.append(piece("p", "by", "model"), piece("div", "words"));
        const shown = one.lastElementChild;
        if (one.dataset.round !== String(words.round)) shown.textContent = "";
        one.dataset.round = words.round;
        shown.textContent = words.at ? shown.textContent.slice(0, words.at) + words.text : words.text;
      });
    },
    command(words) {
      // The terminals come as soon as there is a sandbox, not with the first command's end.
      if (words.phase !== "waiting" && document.querySelector("#screen-place[data-empty]")) {
        document.body.dispatchEvent(new CustomEvent("kennel:place"));
      }
      if (words.phase === "finished") shelf();
      keepEnd(() => {
        const one = passing(`command ${words.commandId}`, "ran");
        one.replaceChildren(piece("code", "line", `$ ${words.command}`));
        const state = { waiting: `waits, ${words.place} before it`, running: words.waking ? "wakes the sandbox…" : "runs…" };
        if (words.phase !== "finished") one.append(piece("p", "dim", state[words.phase]));
        else if (words.error || words.code) one.append(piece("p", "complaint", words.error || words.code));
        else {
          one.append(piece("pre", "out", words.output));
          if (words.exitCode) one.append(piece("p", "complaint", `exit code ${words.exitCode}`));
        }
      });
    },
    queue(words) {
      const parts = [];
      if (words.turns.length) parts.push(words.turns.length === 1 ? "the model answers" : `${words.turns.length} messages wait or are answered`);
      if (words.commands > 1) parts.push(`${words.commands} commands wait or run`);
      queue.textContent = parts.join(" · ");
    },
    // A token that is shown once stays until the page is left.
    presence() { if (!document.querySelector("#people .notice")) document.body.dispatchEvent(new CustomEvent("kennel:people")); },
  };

  const open = () => {
    if (source || document.hidden) return;
    const address = new URL(list.dataset.talk, location.href);
    address.searchParams.set("after", after);
    if (closed) shelf(); // what ended meanwhile passed by
    source = new EventSource(address);
    for (const kind of Object.keys(heard)) {
      source.addEventListener(kind, (event) => {
        if (kind === "row") {
          if (Number(event.lastEventId) <= Number(after)) return;
          after = event.lastEventId;
        }
        heard[kind](JSON.parse(event.data));
      });
    }
  };
  const close = () => { if (source) source.close(), closed = true; source = null; };
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", open);
  list.scrollTop = list.scrollHeight;
  open();
}

// The files are asked for while they are seen; on a small screen they wait, folded, to be wanted.
function shelf() {
  if (document.querySelector("[data-shelf][open]")) document.body.dispatchEvent(new CustomEvent("kennel:files"));
}
function fold(panel) {
  if (matchMedia("(max-width: 620px)").matches) panel.open = false;
  setTimeout(() => panel.addEventListener("toggle", shelf));
}

// Sending waits for the model's whole answer; the next message need not.
function sayer(form) {
  const text = form.querySelector("[name=text]");
  const send = async () => {
    if (!text.value.trim()) return;
    const body = new URLSearchParams(new FormData(form));
    text.value = "";
    try {
      const answer = await fetch(form.action, { method: "POST", body, headers: { "hx-request": "true" } });
      // A refusal is a page's piece of the server's own, escaped there.
      if (answer.status >= 400) document.querySelector("#notices").innerHTML = await answer.text();
      else document.querySelector("#notices").replaceChildren();
    } catch {
      if (!text.value) text.value = body.get("text");
    }
  };
  form.addEventListener("submit", (event) => { event.preventDefault(); send(); });
  text.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
}

// One name for all rooms of this browser; a page that joined gives a sign of life while it is seen.
function names() {
  const kept = localStorage.getItem("kennel-name") || "";
  for (const input of document.querySelectorAll("[data-name]")) if (!input.value) input.value = kept;
}

document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll("[data-talk]").forEach(talk);
  document.querySelectorAll("[data-say]").forEach(sayer);
  document.querySelectorAll("[data-shelf]").forEach(fold);
  names();
  document.body.addEventListener("change", (event) => {
    if (event.target.matches("[data-name]")) localStorage.setItem("kennel-name", event.target.value.trim());
  });
  document.addEventListener("htmx:after:swap", names);
  document.addEventListener("htmx:finally:request", (event) => {
    if (event.target.closest?.(".held form")) document.body.dispatchEvent(new CustomEvent("kennel:answered"));
  });
  let joined = false;
  document.body.addEventListener("submit", (event) => { if (event.target.matches("[data-join]")) joined = true; });
  setInterval(() => {
    const form = document.querySelector("[data-join]");
    if (!joined || !form || document.hidden) return;
    const body = new URLSearchParams(new FormData(form));
    body.delete("role");
    fetch(form.action, { method: "POST", body, headers: { "hx-request": "true" } });
  }, 25000);
});
