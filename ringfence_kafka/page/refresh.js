"use strict";
// Brings the document anew every few seconds, and keeps where its reader is: focus, what is unfolded, where it is scrolled to.
// Shows times in the zone of the viewer, and names each cell for narrow screens, where rows become cards. Keeps the words of commands whole.
const EVERY_MS = 5000;
const LIMIT_MS = 15000;
let paused = false;
let answered = new Date();

function dress(root) {
  for (const each of root.querySelectorAll("time")) {
    each.title = each.textContent;
    each.textContent = new Date(each.dateTime).toLocaleString();
  }
  for (const each of root.querySelectorAll("code")) { // an option in two lines is not the option
    each.replaceChildren(...each.textContent.split(/( )/).map((word) => {
      if (!word.includes("-")) return word;
      const whole = document.createElement("span");
      whole.textContent = word;
      return whole;
    }));
  }
  for (const table of root.querySelectorAll("table:not(.lanes)")) {
    const names = [...table.querySelectorAll("thead th")].map((each) => each.textContent);
    for (const row of table.querySelectorAll("tbody tr")) {
      [...row.cells].forEach((cell, place) => { cell.dataset.label = names[place]; });
    }
    table.classList.add("cards");
  }
}

function places() {
  const open = [...document.querySelectorAll("main details[open]")].map((each) => each.id);
  return { open, focus: document.activeElement && document.activeElement.id };
}

function restore(was) {
  for (const id of was.open) {
    const found = document.getElementById(id);
    if (found) found.open = true;
  }
  const focused = was.focus && document.getElementById(was.focus);
  if (focused && focused !== document.activeElement) focused.focus({ preventScroll: true });
}

async function refresh() {
  const stale = document.getElementById("stale");
  try {
    const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(LIMIT_MS) });
    if (!answer.ok) throw new Error(answer.statusText);
    const brought = new DOMParser().parseFromString(await answer.text(), "text/html");
    const selection = document.getSelection();
    if (selection && !selection.isCollapsed) return; // somebody copies a command
    const was = places();
    const all = document.adoptNode(brought.getElementById("all"));
    dress(all);
    document.getElementById("all").replaceWith(all);
    document.title = brought.title;
    restore(was);
    answered = new Date();
    stale.hidden = true;
  } catch {
    stale.textContent = `This process has not answered since ${answered.toLocaleTimeString()}: this page shows that time. ` +
      "Is it running? Another worker's page, or 'ringfence status', shows the present state.";
    stale.hidden = false;
  }
}

async function run() {
  for (;;) {
    await new Promise((done) => setTimeout(done, EVERY_MS));
    if (!paused && !document.hidden) await refresh();
  }
}

const button = document.getElementById("pause");
button.hidden = false;
button.addEventListener("click", () => {
  paused = !paused;
  button.textContent = paused ? "Continue" : "Pause";
  button.setAttribute("aria-pressed", String(paused));
  if (!paused) refresh();
});
dress(document);
run();
