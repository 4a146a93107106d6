"use strict";
// Draws what /map.json says, again and again. Names and words come from other machines: they become
// text nodes, never HTML.

const PAUSE_MS = 2000;
const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 1000, ROW = 130, RADIUS = 13;

const byId = (id) => document.getElementById(id);

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function shape(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

const known = (number, digits, unit) =>
  number === null || number === undefined ? "-" : number.toFixed(digits) + (unit || "");
const percent = (share) => (share === null ? "-" : (share * 100).toFixed(2) + " %");
const tone = (state) =>
  state === "up" ? "good" : ["down", "no answer", "no daemon"].includes(state) ? "bad" : "";

// Columns by the place on the longest path, rows by order; nodes on no path come first.
function places(map) {
  const column = map.nodes.map(() => 0);
  map.flows.forEach((flow, index) => {
    if (index % 2 === 0) flow.nodes.forEach((node, at) => { column[node] = Math.max(column[node], at); });
  });
  const columns = Math.max(...column, 0) + 1;
  const used = Array(columns).fill(0);
  const spots = map.nodes.map((_, node) => {
    const x = (WIDTH * (column[node] + 0.5)) / columns;
    return { x, y: ROW * (0.5 + used[column[node]]++) };
  });
  return { spots, height: ROW * Math.max(...used, 1) };
}

// What flows over a link, one line for each direction: rate, and loss of this link.
function labels(map, link) {
  const lines = [];
  for (const flow of map.flows) {
    for (let hop = 0; hop + 1 < flow.nodes.length; hop++) {
      const [from, to] = [flow.nodes[hop], flow.nodes[hop + 1]];
      if (!(link.ends.includes(from) && link.ends.includes(to))) continue;
      const arrow = map.nodes[from].name + " → " + map.nodes[to].name;
      lines.push(arrow + ": " + known(flow.goodput_mbit, 1, " Mbit/s") + ", lost " + percent(flow.loss[hop]));
    }
  }
  return lines;
}

function draw(map) {
  const svg = byId("map");
  const { spots, height } = places(map);
  svg.setAttribute("viewBox", "0 0 " + WIDTH + " " + height);
  svg.replaceChildren();
  for (const link of map.links) {
    const [a, b] = link.ends.map((end) => spots[end]);
    svg.append(shape("line", { x1: a.x, y1: a.y, x2: b.x, y2: b.y }));
    const lines = labels(map, link);
    lines.slice(0, 4).forEach((text, row) => {
      const side = row % 2 === 0 ? -10 - 7 * row : 18 + 7 * (row - 1);
      svg.append(shape("text", { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 + side, class: "small" }, text));
    });
  }
  map.nodes.forEach((node, index) => {
    const { x, y } = spots[index];
    svg.append(shape("circle", { cx: x, cy: y, r: RADIUS, class: tone(node.state) }));
    svg.append(shape("text", { x, y: y - RADIUS - 8, class: "name" }, node.name));
    svg.append(shape("text", { x, y: y + RADIUS + 16, class: "small" }, node.state));
  });
}

function table(id, head, rows) {
  const top = element("tr");
  head.forEach((text) => top.append(element("th", "", text)));
  byId(id + "-head").replaceChildren(top);
  byId(id).replaceChildren(...rows.map((cells) => {
    const row = element("tr");
    cells.forEach(([text, className]) => row.append(element("td", className, text)));
    return row;
  }));
}

function tables(map) {
  const name = (node) => map.nodes[node].name;
  table("flows",
    ["flow", "way", "code", "state", "delivered", "on the wire", "theory", "rank", "theory", "loss by hop"],
    map.flows.map((flow) => [
      [String(flow.id)],
      [flow.nodes.map(name).join(" → ")],
      [flow.code || "-"],
      [flow.state || "-", tone(flow.state)],
      [known(flow.goodput_mbit, 1, " Mbit/s")],
      [known(flow.ratio, 2, "x")],
      [known(flow.theory, 2)],
      [known(flow.rank, 4)],
      [known(flow.rank_theory, 4)],
      [flow.loss.map(percent).join(", ")],
    ]));
  table("nodes", ["node", "host", "state", "version", "why"], map.nodes.map((node) => [
    [node.name], [node.host], [node.state, tone(node.state)], [node.version || "-"], [node.why],
  ]));
}

function note(text, isBad) {
  byId("note").textContent = text;
  byId("note").className = isBad ? "bad" : "";
}

async function look() {
  try {
    const answer = await fetch("/map.json", { cache: "no-store" });
    if (!answer.ok) throw new Error("HTTP " + answer.status);
    const map = await answer.json();
    byId("title").textContent = map.network;
    draw(map);
    tables(map);
    const up = map.nodes.filter((node) => node.state === "up").length;
    const asked = map.nodes.filter((node) => node.state !== "not asked").length;
    note(asked === 0 ? "asking all boxes" : up + " of " + map.nodes.length + " boxes up, "
      + new Date().toLocaleTimeString(), up < asked);
  } catch (error) {
    note("recodectl does not answer (" + error.message + "): what is shown is old; start it again", true);
  }
  setTimeout(look, PAUSE_MS);
}

look();
