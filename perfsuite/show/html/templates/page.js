"use strict";
const root = document.documentElement;
const remembered = (value) => {
  try { return value ? localStorage.setItem("perfsuite-theme", value) : localStorage.getItem("perfsuite-theme"); }
  catch { return null; }  // a page from disk may not store anything
};
if (remembered()) root.dataset.theme = remembered();
document.querySelector("#theme").addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  remembered(root.dataset.theme);
});
const copy = async (text) => {
  try { await navigator.clipboard.writeText(text); return; } catch { /* only a secure context has it */ }
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
};
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.copy !== undefined) {
    await copy(button.parentElement.querySelector("pre").textContent);
    button.textContent = "copied";
    document.querySelector("#told").textContent = "The command is copied.";
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  } else if (button.dataset.fold !== undefined) {
    const folds = [...button.closest("section").querySelectorAll("details")];
    const open = folds.some((fold) => !fold.open);
    folds.forEach((fold) => { fold.open = open; });
    button.textContent = open ? "fold all" : "unfold all";
  } else if (button.parentElement.tagName === "TH") {
    sort(button.parentElement);
  }
});
const key = (row, index) => {
  const cell = row.cells[index];
  const text = cell.dataset.v ?? cell.textContent.trim();
  const number = Number.parseFloat(text);
  return cell.dataset.v !== undefined && !Number.isNaN(number) ? number : text.toLowerCase();
};
const sort = (head) => {
  const table = head.closest("table"), index = head.cellIndex, body = table.tBodies[0];
  const order = head.ariaSort === "descending" ? 1 : head.ariaSort === "ascending" ? -1
    : table.classList.contains(`n${index}`) ? -1 : 1;
  const rows = [...body.rows].sort((one, other) => {
    const a = key(one, index), b = key(other, index);
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;  // a row without a number is last
    return (a < b ? -1 : a > b ? 1 : 0) * order;
  });
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", order > 0 ? "ascending" : "descending");
  body.append(...rows);
};
for (const table of document.querySelectorAll("table.stack")) {  // on a phone each value has its column's name
  const heads = [...table.tHead.rows[0].cells].map((head) => head.textContent.trim());
  for (const row of table.tBodies[0].rows) for (const cell of row.cells) cell.dataset.head = heads[cell.cellIndex];
}
const matches = (row, field) => {
  if (field.tagName === "SELECT") return !field.value || row.cells[field.dataset.column].textContent.trim() === field.value;
  const text = row.textContent.toLowerCase();
  return field.value.toLowerCase().split(/\s+/).every((word) => text.includes(word));
};
for (const tools of document.querySelectorAll(".tools[data-filters]")) {
  const table = document.getElementById(tools.dataset.filters);
  const fields = [...tools.querySelectorAll("input, select")], count = tools.querySelector("output");
  const filter = () => {
    let shown = 0;
    for (const row of table.tBodies[0].rows) {
      row.hidden = !fields.every((field) => matches(row, field));
      shown += !row.hidden;
    }
    count.textContent = shown ? `${shown} of ${table.tBodies[0].rows.length}` : "No row matches.";
  };
  fields.forEach((field) => field.addEventListener("input", filter));
  filter();
}
const unfold = () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  if (target) target.scrollIntoView();
};
addEventListener("hashchange", unfold);
if (location.hash) unfold();
