// Uploads: chosen or dropped files go up one after the other, each as the body of its own request.
"use strict";

function uploads(form) {
  const input = form.querySelector("input[type=file]");
  const replace = form.querySelector("[name=replace]");
  const drop = document.querySelector("[data-drop]");
  const status = drop.querySelector("[data-sending]");
  const bar = status.querySelector("progress");
  const words = status.querySelector("span");
  let busy = false;

  // Complaints are pages of the server's own, escaped there.
  const complain = (html) => { document.querySelector("#notices").innerHTML = html; };

  const send = (file) => new Promise((done) => {
    const request = new XMLHttpRequest();
    const below = form.dataset.below.replace(/\/$/, "");
    request.open("PUT", `${form.dataset.upload}${below}/${encodeURIComponent(file.name)}${replace.checked ? "&replace=1" : ""}`);
    request.setRequestHeader("x-kennel-form", form.dataset.token);
    request.setRequestHeader("hx-request", "true");
    request.setRequestHeader("content-type", "application/octet-stream");
    request.upload.onprogress = (event) => { if (event.lengthComputable) bar.value = event.loaded / event.total; };
    request.onload = () => {
      const fine = request.status === 200;
      if (!fine) complain(request.responseText);
      done(fine);
    };
    request.onerror = () => {
      const told = document.createElement("p");
      told.className = "notice problem";
      told.setAttribute("role", "alert");
      told.textContent = `${file.name} did not arrive: the connection broke, or a file of this name is there already.`;
      document.querySelector("#notices").replaceChildren(told);
      done(false);
    };
    request.send(file);
  });

  const all = async (files) => {
    if (busy || !files.length) return;
    busy = true;
    status.hidden = false;
    let fine = true;
    for (const file of files) {
      words.textContent = file.name;
      bar.value = 0;
      fine = (await send(file)) && fine;
    }
    busy = false;
    status.hidden = true;
    input.value = "";
    if (fine) location.reload();
  };

  form.hidden = false;
  input.addEventListener("change", () => all(Array.from(input.files)));
  for (const kind of ["dragover", "dragleave", "drop"]) {
    drop.addEventListener(kind, (event) => {
      if (!event.dataTransfer || !Array.from(event.dataTransfer.types).includes("Files")) return;
      event.preventDefault();
      drop.classList.toggle("over", kind === "dragover");
      if (kind === "drop") all(Array.from(event.dataTransfer.files));
    });
  }
}

document.addEventListener("DOMContentLoaded", () => document.querySelectorAll("[data-upload]").forEach(uploads));
