// Terminals: xterm.js on one side, a WebSocket of the API's frames on the other. A terminal lives in its sandbox, so this
// page may come and go: it comes back with the position it has seen.
"use strict";

// The policy of the page forbids inline styles. xterm.js writes rules into <style> elements and one attribute of spans;
// both are handed on to the object model, which the policy allows because nothing is parsed as markup there.
function withoutInlineStyles(own) {
  const make = own.createElement.bind(own);
  own.createElement = (name, options) => {
    // An empty <style> is an offence too; a template in its place is none and shows nothing.
    const one = make(name === "style" ? "template" : name, options);
    if (name === "style") {
      const sheet = new CSSStyleSheet();
      own.adoptedStyleSheets = [...own.adoptedStyleSheets, sheet];
      Object.defineProperty(one, "sheet", { value: sheet });
      Object.defineProperty(one, "textContent", { set: (rules) => sheet.replaceSync(rules), get: () => "" });
      one.remove = () => {
        own.adoptedStyleSheets = own.adoptedStyleSheets.filter((other) => other !== sheet);
        Element.prototype.remove.call(one);
      };
    } else if (name === "span") {
      one.setAttribute = (key, value) => {
        if (key === "style") one.style.cssText = value;
        else Element.prototype.setAttribute.call(one, key, value);
      };
    }
    return one;
  };
}

const PALETTE = {
  background: "#0f1312", foreground: "#dfe5e1", cursor: "#62cdb1", cursorAccent: "#0f1312", selectionBackground: "#2f4f47",
  black: "#2a302d", red: "#ff9389", green: "#6fd394", yellow: "#e7b257", blue: "#7fb4ff", magenta: "#d3a4ff", cyan: "#62cdb1",
  white: "#dfe5e1", brightBlack: "#8b958f", brightRed: "#ffb3ab", brightGreen: "#95e6b3", brightYellow: "#f2cc86",
  brightBlue: "#a8ccff", brightMagenta: "#e3c6ff", brightCyan: "#8fe3cd", brightWhite: "#ffffff",
};
const AGAIN = 4000;
const PAUSES = [300, 1000, 2000, 4000, 8000];

class Screen {
  constructor(box) {
    this.box = box;
    this.find = (word) => box.querySelector(`[data-${word}]`);
    this.address = box.dataset.terminals;
    this.id = null;
    this.socket = null;
    this.watches = "watched" in box.dataset;
    this.sides = new Map();
    this.find("new")?.addEventListener("click", () => this.start(this.free()));
    this.find("drive")?.addEventListener("click", () => this.connect());
    this.find("hang")?.addEventListener("click", () => this.hangUp());
    this.find("list").addEventListener("click", (event) => {
      const chosen = event.target.closest("[data-open]");
      if (chosen) this.start(chosen.dataset.open);
    });
    new ResizeObserver(() => this.fit()).observe(this.find("screen"));
    const wanted = /^#terminal=([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})$/.exec(location.hash);
    if (wanted && this.names().includes(wanted[1])) this.start(wanted[1]);
  }

  names() { return Array.from(this.find("list").children, (one) => one.dataset.open); }

  free() {
    const taken = new Set(this.names());
    let number = 1;
    while (taken.has(`web-${number}`)) number += 1;
    return `web-${number}`;
  }

  // An onlooker has not every button.
  reveal(word, seen) {
    const one = this.find(word);
    if (one) one.hidden = !seen;
  }

  say(words) { this.find("told").textContent = words; }

  offer(id) {
    const button = document.createElement("button");
    button.type = "button";
    button.dataset.open = id;
    button.textContent = id;
    this.find("list").append(button);
  }

  start(id) {
    this.id = id;
    this.cursor = null;
    this.runtime = null;
    this.tries = 0;
    this.over = false;
    if (!this.names().includes(id)) this.offer(id);
    for (const one of this.find("list").children) one.setAttribute("aria-pressed", String(one.dataset.open === id));
    history.replaceState(null, "", `#terminal=${id}`);
    this.find("screen").hidden = false;
    this.find("none").hidden = true;
    this.reveal("keys", true);
    this.reveal("hang", true);
    if (this.term) this.term.dispose();
    this.term = new Terminal({
      allowProposedApi: false, cursorBlink: !matchMedia("(prefers-reduced-motion: reduce)").matches, scrollback: 5000,
      fontFamily: getComputedStyle(document.documentElement).getPropertyValue("--mono"),
      fontSize: innerWidth < 620 ? 12 : 13, theme: PALETTE, screenReaderMode: true,
      disableStdin: this.watches,
      // A program may print links; where one leads is shown, and going there is left to the reader.
      linkHandler: { activate: (_, link) => this.say(`link: ${link}`) },
    });
    this.fitter = new FitAddon.FitAddon();
    this.term.loadAddon(this.fitter);
    this.term.open(this.find("screen"));
    this.term.attachCustomKeyEventHandler((event) => {
      if (event.key !== "Escape" || !event.shiftKey) return true;
      this.find("list").querySelector("[aria-pressed=true]").focus();
      return false;
    });
    this.term.onData((text) => this.type(new TextEncoder().encode(text)));
    this.term.onBinary((text) => this.type(Uint8Array.from(text, (letter) => letter.charCodeAt(0))));
    this.term.onResize(({ cols, rows }) => {
      if (this.role === "drive") this.tell({ type: "resize", cols, rows });
    });
    this.fit();
    this.connect();
    if (!this.watches) this.term.focus();
  }

  fit() {
    if (!this.term || this.find("screen").hidden) return;
    const sides = this.fitter.proposeDimensions();
    if (sides && sides.cols > 1 && sides.rows > 1) this.term.resize(Math.min(sides.cols, 1000), Math.min(sides.rows, 1000));
  }

  type(data) {
    if (this.socket && this.socket.readyState === WebSocket.OPEN && this.role === "drive") this.socket.send(data);
  }

  tell(words) {
    if (this.socket && this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(words));
  }

  connect() {
    if (this.socket) this.socket.onclose = null, this.socket.close();
    clearTimeout(this.later);
    this.say("connecting…");
    this.reveal("drive", false);
    this.role = null;
    const address = new URL(`${this.address}/${encodeURIComponent(this.id)}`, location.href);
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    address.searchParams.set("cols", this.term.cols);
    address.searchParams.set("rows", this.term.rows);
    if (this.cursor !== null) address.searchParams.set("since", this.cursor);
    if (this.runtime !== null) address.searchParams.set("runtime", this.runtime);
    const socket = new WebSocket(address, ["kennel.v1", `kennel.form.${this.box.dataset.token}`]);
    socket.binaryType = "arraybuffer";
    this.socket = socket;
    let opened = false;
    socket.onopen = () => { opened = true; };
    socket.onmessage = ({ data }) => (typeof data === "string" ? this.hear(JSON.parse(data)) : this.show(new Uint8Array(data)));
    socket.onclose = (event) => {
      if (this.over) return;
      if (event.code === AGAIN) this.connect();
      else if (opened) this.retry();
      else this.ask();
    };
  }

  show(bytes) {
    if (this.cursor !== null) this.cursor += bytes.length;
    this.term.write(bytes);
  }

  hear(words) {
    if (words.type === "ready") {
      this.tries = 0;
      this.cursor = words.cursor;
      this.runtime = words.runtime;
      this.takeSides(words);
      this.takeRole(words.role);
      if (words.role === "drive") this.tell({ type: "resize", cols: this.term.cols, rows: this.term.rows });
    } else if (words.type === "role") {
      this.takeRole(words.role);
    } else if (words.type === "resize") {
      this.takeSides(words);
    } else if (words.type === "truncated") {
      if (this.cursor !== null) this.cursor += words.bytes;
      this.say(`${words.bytes} bytes were missed`);
    } else if (words.type === "exit") {
      this.end(`ended: ${words.signal ? words.signal : `exit code ${words.code ?? "unknown"}`}`);
    } else if (words.type === "error") {
      this.end(`${words.error} (${words.code})`);
    }
  }

  takeRole(role) {
    this.role = role;
    this.reveal("drive", role !== "drive");
    this.say(role === "drive" ? "connected" : this.watches ? "watching" : "watching: somebody else types");
  }

  // Of its size a terminal tells; only an onlooker shows it so.
  takeSides() {}

  retry() {
    this.role = null;
    const pause = PAUSES[Math.min(this.tries, PAUSES.length - 1)];
    this.tries += 1;
    this.say("the connection broke; trying again…");
    this.later = setTimeout(() => this.connect(), pause);
  }

  // A refused handshake has no words for a script: what became of the terminal is asked by another way.
  async ask() {
    let answer;
    try {
      answer = await fetch(this.address, { redirect: "manual" });
    } catch {
      this.retry();
      return;
    }
    if (answer.type === "opaqueredirect") this.end("you are logged out: load the page again");
    else if (!answer.ok) this.end(answer.status === 410 ? "the sandbox was destroyed" : "the sandbox refuses");
    else {
      const found = (await answer.json()).terminals.find((one) => one.id === this.id);
      if (this.runtime !== null && (!found || found.runtime !== this.runtime)) this.end("gone: the sandbox slept or started anew");
      else this.retry();
    }
  }

  end(words) {
    this.over = true;
    this.role = null;
    this.say(words);
    if (this.socket) this.socket.close();
    this.reveal("drive", false);
    this.reveal("hang", false);
    const button = Array.from(this.find("list").children).find((one) => one.dataset.open === this.id);
    if (button) button.remove();
    history.replaceState(null, "", location.pathname + location.search);
  }

  async hangUp() {
    const body = new URLSearchParams({ token: this.box.dataset.token });
    await fetch(`${this.address}/${encodeURIComponent(this.id)}/close`, { method: "POST", body, headers: { "hx-request": "true" } });
  }
}

// Somebody who only looks: which are open is asked for by itself, the first is shown, in the size that its driver gave it.
const LOOK = 4000;
class Onlooker extends Screen {
  constructor(box) {
    super(box);
    this.looking = setInterval(() => this.look(), LOOK);
    this.look();
  }

  fit() {
    const sides = this.sides.get(this.id);
    if (this.term && sides) this.term.resize(...sides);
  }

  takeSides({ cols, rows }) {
    this.sides.set(this.id, [cols, rows]);
    this.fit();
  }

  async look() {
    if (!this.box.isConnected) {
      clearInterval(this.looking);
      this.over = true;
      if (this.socket) this.socket.close();
      return;
    }
    if (document.hidden) return;
    let open;
    try {
      const answer = await fetch(this.address, { redirect: "manual" });
      if (!answer.ok) return;
      open = (await answer.json()).terminals;
    } catch {
      return; // the next look asks again
    }
    const list = this.find("list");
    for (const one of Array.from(list.children)) if (!open.some(({ id }) => id === one.dataset.open)) one.remove();
    for (const { id, cols, rows } of open) {
      this.sides.set(id, [cols, rows]);
      if (!this.names().includes(id)) this.offer(id);
    }
    const shows = this.id !== null && !this.over;
    if (!shows && open.length) this.start(open[0].id);
  }
}

document.addEventListener("DOMContentLoaded", () => {
  withoutInlineStyles(document);
  const seen = new WeakSet();
  const begin = () => {
    for (const box of document.querySelectorAll("[data-terminals]")) {
      if (!seen.has(box)) seen.add(box), "watched" in box.dataset ? new Onlooker(box) : new Screen(box);
    }
  };
  begin();
  document.addEventListener("htmx:after:swap", begin);
});
