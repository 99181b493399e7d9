// A join link's token stands behind `#`, which no server is sent and no log holds: it is handed over as a form's field,
// and leaves the address and the history with that.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const form = document.querySelector("[data-invited]");
  const token = location.hash.slice(1);
  if (location.hash) history.replaceState(null, "", location.pathname);
  if (!/^[A-Za-z0-9_-]{8,200}$/.test(token)) return;
  form.querySelector("[name=key]").value = token;
  if (!("asks" in form.dataset)) form.requestSubmit();
});
