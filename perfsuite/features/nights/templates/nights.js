"use strict";
const nights = JSON.parse(document.getElementById("nights").textContent);
const WIDE = 360, HIGH = 150, LEFT = 48, RIGHT = 6, TOP = 16, BOTTOM = 18;
const FEW = 60;  // nights that have a dot each
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const draw = (name, attributes, text) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
};
for (const series of nights) {
  let minutes = series.first;
  series.times = [minutes, ...series.gaps.map((gap) => { minutes += gap; return minutes; })];
  for (const metric of series.metrics) {
    if (metric.runs) {
      metric.values = [];
      for (let at = 0; at < metric.runs.length; at += 2)
        for (let count = 0; count < metric.runs[at + 1]; count += 1) metric.values.push(metric.runs[at]);
    }
    metric.values = metric.values.map((value) => (value === null ? null : value * metric.scale));
  }
}
const round = (low, high, most) => {
  if (!(high > low)) return [low];
  const power = 10 ** Math.floor(Math.log10((high - low) / most));
  const step = power * [1, 2, 2.5, 5, 10].find((nice) => power * nice * most >= high - low);
  const found = [];
  for (let tick = Math.ceil(low / step - 1e-9) * step; tick <= high + step * 1e-9; tick += step) found.push(tick);
  return found;
};
const short = (value) => Number(value.toPrecision(6)).toLocaleString("en", { maximumSignificantDigits: 6 });
const brief = (value) => {  // a tick has room for seven characters
  if (value && Math.abs(value) < 1e-3) return value.toExponential(2).replace("e-", "e−");
  return Math.abs(value) < 1e5 ? short(value)
    : value.toLocaleString("en", { notation: "compact", maximumSignificantDigits: 4 });
};
const day = (minutes) => new Date(minutes * 60000).toISOString();
const ranges = (metric, start) => {  // outliers are cut off at the top, so that the steps can be seen
  const known = metric.values.slice(start).filter((value) => value !== null).sort((a, b) => a - b);
  if (!known.length) return [0, 1];
  const at = (share) => known[Math.min(known.length - 1, Math.floor(share * known.length))];
  let low = at(0.002), high = at(0.995);
  for (const [night] of metric.steps) if (night >= start) for (const near of metric.values.slice(Math.max(start, night - 3), night + 4))
    if (near !== null) { low = Math.min(low, near); high = Math.max(high, near); }
  const least = Math.abs(known[known.length >> 1]) * 0.02 || 1;
  const room = Math.max(high - low, least) * 0.12;
  return high - low < least ? [(low + high - least) / 2 - room, (low + high + least) / 2 + room] : [low - room, high + room];
};
let shown = Infinity;  // nights of every chart
const chart = (svg) => {
  svg.replaceChildren();
  const series = nights[svg.dataset.series], metric = series.metrics[svg.dataset.metric], times = series.times;
  const start = Math.max(0, times.length - shown), seen = (night) => night >= start;
  const [low, high] = ranges(metric, start), first = times[start], last = times[times.length - 1];
  const x = (night) => LEFT + (last > first ? (times[night] - first) / (last - first) : 0.5) * (WIDE - LEFT - RIGHT);
  const y = (value) => TOP + (1 - (Math.min(high, Math.max(low, value)) - low) / (high - low)) * (HIGH - TOP - BOTTOM);
  for (const tick of round(low, high, 4)) {
    svg.append(draw("line", { x1: LEFT, x2: WIDE - RIGHT, y1: y(tick), y2: y(tick), class: "grid" }));
    svg.append(draw("text", { x: LEFT - 4, y: y(tick) + 3.5, "text-anchor": "end", class: "t" }, brief(tick)));
  }
  const months = [];
  for (let date = new Date(first * 60000), month = date.getUTCFullYear() * 12 + date.getUTCMonth() + 1; ; month += 1) {
    const begin = Date.UTC(Math.floor(month / 12), month % 12) / 60000;
    if (begin > last) break;
    months.push([begin, month]);
  }
  const every = Math.ceil(months.length / 5);
  months.filter((_, index) => index % every === 0).forEach(([begin, month], index) => {
    const place = LEFT + ((begin - first) / (last - first)) * (WIDE - LEFT - RIGHT);
    if (place > WIDE - 26) return;
    svg.append(draw("line", { x1: place, x2: place, y1: HIGH - BOTTOM, y2: HIGH - BOTTOM + 3, class: "edge" }));
    const year = month % 12 === 0 || index === 0 || every > 6 ? ` ${Math.floor(month / 12)}` : "";
    svg.append(draw("text", { x: place, y: HIGH - 5, class: "t" }, MONTHS[month % 12] + year));
  });
  if (!months.length) svg.append(draw("text", { x: LEFT, y: HIGH - 5, class: "t" }, day(first).slice(0, 10)));
  for (const [night, text] of series.releases) if (seen(night)) {
    const place = x(night), mark = draw("path", { d: `M${place - 3} ${TOP - 4}h6l-3 5z`, class: "release" });
    mark.append(draw("title", {}, text));
    svg.append(draw("line", { x1: place, x2: place, y1: TOP, y2: HIGH - BOTTOM, class: "rule faint" }), mark);
  }
  svg.append(draw("path", { d: line(metric.values, start, x, y), class: "curve l0" }));
  const few = times.length - start <= FEW, none = (night) => (metric.values[night] ?? null) === null;
  metric.values.forEach((value, night) => {  // a value without neighbours has no line
    if (seen(night) && value !== null && (few || (none(night - 1) && none(night + 1)))) svg.append(draw("circle", { cx: x(night), cy: y(value), r: 2, class: "f0" }));
  });
  for (const night of series.empty) if (seen(night)) {
    svg.append(draw("path", { d: `M${x(night) - 2.5} ${HIGH - BOTTOM - 6}l5 5m0 -5l-5 5`, class: "limit none" }));
  }
  for (const night of metric.red) if (seen(night) && metric.values[night] !== null)
    svg.append(draw("circle", { cx: x(night), cy: y(metric.values[night]), r: 2.6, class: "bad" }));
  metric.steps.filter(([night]) => seen(night)).forEach(([night, text, confirmed, worse]) => {
    const place = x(night), tone = worse === null ? "yellow" : worse ? "red" : "green", end = place > WIDE - 60;
    svg.append(draw("line", { x1: place, x2: place, y1: TOP, y2: HIGH - BOTTOM, class: `step ${tone}` }));
    svg.append(draw("path", { d: `M${place} ${TOP - 1}l4 4l-4 4l-4 -4z`, class: `step ${tone}${confirmed ? " sure" : ""}` }));
    svg.append(draw("text", { x: place + (end ? -5 : 5), y: TOP - 5, "text-anchor": end ? "end" : "start", class: `word ${tone}` }, text));
  });
  const cursor = draw("line", { y1: TOP, y2: HIGH - BOTTOM, class: "edge", visibility: "hidden" });
  svg.append(cursor);
  svg.nights = { series, metric, x, cursor, start, night: times.length - 1 };
  watch(svg);
};
const line = (values, start, x, y) => {  // of many nights, the lowest and the highest of each pixel
  let path = "", pen = false, column = null, low = 0, high = 0;
  const flush = () => { if (column !== null && high > low) path += `L${column} ${low.toFixed(1)}V${high.toFixed(1)}`; };
  const dense = values.length - start > 2 * WIDE;
  for (let night = start; night < values.length; night += 1) {
    const value = values[night];
    if (value === null) { flush(); column = null; pen = false; continue; }
    const place = dense ? x(night).toFixed(0) : x(night).toFixed(1), height = y(value);
    if (dense && pen && place === column) { low = Math.min(low, height); high = Math.max(high, height); continue; }
    flush();
    path += `${pen ? "L" : "M"}${place} ${height.toFixed(1)}${pen ? "" : "h.1"}`;
    pen = true; column = dense ? place : null; low = high = height;
  }
  flush();
  return path;
};
const tell = (svg) => {
  const { series, metric, x, cursor, night } = svg.nights;
  for (const end of ["x1", "x2"]) cursor.setAttribute(end, x(night));
  cursor.setAttribute("visibility", "visible");
  const value = metric.values[night], release = series.releases.find(([at]) => at === night);
  svg.parentElement.querySelector(".night").textContent = [
    day(series.times[night]).slice(0, 16).replace("T", " "), (series.commits[night] || "").slice(0, 12),
    value === null ? "no value" : `${short(value)} ${metric.unit}`, series.notes[night], release && release[1],
  ].filter(Boolean).join(" · ");
};
const watch = (svg) => {  // a chart that is drawn again keeps its listeners
  svg.onpointermove = (event) => {
    const { series, x, start } = svg.nights, box = svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * WIDE;
    let low = start, high = series.times.length - 1;
    while (high - low > 1) { const middle = (low + high) >> 1; if (x(middle) < at) low = middle; else high = middle; }
    svg.nights.night = at - x(low) < x(high) - at ? low : high;
    tell(svg);
  };
  svg.onkeydown = (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -30, PageDown: 30 }[event.key], { series, start, night } = svg.nights;
    if (by === undefined) return;
    event.preventDefault();
    svg.nights.night = Math.min(series.times.length - 1, Math.max(start, night + by));
    tell(svg);
  };
};
const visible = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) { visible.unobserve(entry.target); chart(entry.target); }
}, { rootMargin: "300px" });
const charts = document.querySelectorAll("svg[data-series]");
charts.forEach((svg) => visible.observe(svg));
addEventListener("beforeprint", () => charts.forEach((svg) => { if (!svg.firstChild) chart(svg); }));
const choice = document.querySelector("#shown");
if (choice) choice.addEventListener("input", () => {
  shown = Number(choice.value) || Infinity;
  charts.forEach((svg) => { if (svg.firstChild) chart(svg); });
});
