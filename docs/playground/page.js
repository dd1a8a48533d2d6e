// The playground's page: files, the timeline, edits, and the state in the link. Simulation is in simulator.js,
// forms of files are in readers.js.

"use strict";

(() => {
  const $ = (id) => document.getElementById(id);
  const SVG = "http://www.w3.org/2000/svg";
  // Kinds of blocks: name, colours of the first and second stage of a device, of the text on them, pattern.
  const KINDS = {
    F: ["forward", ["#0072b2", "#6bb6e6"], ["#fff", "#111"], ""],
    B: ["backward", ["#e69f00", "#f8d488"], ["#111", "#111"], ""],
    I: ["input gradient", ["#c65300", "#f0a878"], ["#fff", "#111"], "stripes"],
    W: ["weight gradient", ["#f0e442", "#faf5b4"], ["#111", "#111"], "dots"],
    R: ["forward again", ["#5b8db8", "#b4cde0"], ["#fff", "#111"], "stripes"],
    O: ["optimizer", ["#6b6b6b", "#bdbdbd"], ["#fff", "#111"], ""],
    shared_F: ["forward on several devices", ["#00664c", "#b5e3d4"], ["#fff", "#111"], ""],
    shared_B: ["backward on several devices", ["#d98bb8", "#f5dcea"], ["#111", "#111"], "dots"],
  };
  const FORWARDS = { B: "F", I: "F", W: "F", R: "F", C: "G", J: "G", X: "G" };
  const NAMES = {
    searched: "Searched", gpipe: "GPipe", one_f_one_b: "1F1B", eager_one_f_one_b: "Eager 1F1B",
    one_f_one_b_plus: "1F1B+", interleaved_one_f_one_b: "Interleaved 1F1B", chimera: "Chimera",
    dual_pipe: "DualPipe", dual_pipe_v: "DualPipe-V", zb_h1: "ZB-H1", zb_h2: "ZB-H2", zb_v: "ZB-V",
    v_half: "V-Half", v_min: "V-Min",
  };
  const ROW = 34, STRIP = 16, GAP = 12, TOP = 20, LEAST_WIDTH = 11, MOST_UNDO = 500, MOST_LINK = 32768;

  // A state is {plan, orders, edits, limits}: orders null for the plan's own, limits for the plan's memory.
  let state = null, plans = [], torch = null, stages = null;
  let undone = [], chosen = [0, 0], shown = null, dragged = null, isOpening = true;

  const limitsOf = () => (state.limits === undefined ? state.plan.memory : state.limits);
  const isEdited = () => Object.keys(state.edits.times).length > 0 || state.edits.transfer !== null;
  const freshState = (plan) => ({ plan, orders: null, edits: { times: {}, transfer: null }, limits: undefined });

  // ---- Words ----

  const round = (value, places = 2) => String(Number(value.toFixed(places)));
  const inMs = (ticks, plan = state.plan) => round(ticks * plan.tickMs, ticks * plan.tickMs < 1 ? 4 : 2) + " ms";
  const percent = (share) => (100 * share).toFixed(1) + " %";
  const partName = ({ devices, stream }) => (
    `device${devices.length > 1 ? "s" : ""} ${devices.join(", ")}${stream === "compute" ? "" : " " + stream}`
  );
  const nameOf = (key) => {
    const { block, n } = shown.problem.runs.get(key);
    return `${state.plan.blocks[block].name} of micro-batch ${n}`;
  };
  const titleOf = (plan) => NAMES[plan.title] || plan.title;

  function inMemory(units, other) {
    const { unitMib } = state.plan;
    if (!unitMib) return `${units} unit${units === 1 ? "" : "s"}`;
    const most = Math.max(units, other || 0) * unitMib;
    return most >= 4096 ? round((units * unitMib) / 1024, 1) + " GiB" : round(units * unitMib, 1) + " MiB";
  }

  function status(found, bound) {
    const limits = limitsOf();
    if (found.cycle.length) {
      const more = found.cycle.length > 4 ? ` and ${found.cycle.length - 4} more` : "";
      return ["bad", "Deadlock.", `${found.cycle.slice(0, 4).map(nameOf).join(", ")}${more} wait for each other; each must run before the one after it, the last before the first.`];
    }
    if (found.overMemory.length) {
      const [device, key, units] = found.overMemory[0];
      return ["bad", "Too much memory.", `Device ${device} holds ${inMemory(units)} of ${inMemory(limits[device], units)} when ${nameOf(key)} starts.`];
    }
    const proved = provedOf();
    if (found.makespan <= bound.ticks) return ["good", "Fastest.", "The iteration is as short as the load bound: no order of these blocks is shorter."];
    if (proved && found.makespan <= proved) return ["good", "Fastest.", "The search proved that no schedule of these blocks in this memory is shorter."];
    const least = Math.max(bound.ticks, proved || 0), name = least > bound.ticks ? "the bound that the search proved" : "the load bound";
    return ["", "Valid.", `The iteration is ${percent(found.makespan / least - 1)} above ${name}, ${inMs(least)}.`];
  }

  /** Return the bound that the file's search proved, while times and memory are the file's. */
  const provedOf = () => (isEdited() || state.limits !== undefined ? null : state.plan.proved || null);

  function showFigures(found, bound) {
    const { plan } = state, limits = limitsOf(), isWhole = found.makespan !== null, ms = found.makespan * plan.tickMs;
    const opened = shown.openedMakespan, change = found.makespan - opened;
    const said = plan.said !== undefined && !isEdited() && !state.orders && isWhole && Math.abs(plan.said - ms) > 1e-6;
    const top = found.peaks.indexOf(Math.max(...found.peaks)), most = found.peaks[top];
    const { lane } = bound, limit = limits && limits[top];
    const load = lane === null ? "the longest chain of blocks" : `device ${shown.problem.lanes[lane].device}: ${inMs(bound.work)} of work${bound.before ? `, ${inMs(bound.before)} before` : ""}${bound.after ? `, ${inMs(bound.after)} after` : ""}`;
    const against = opened && isWhole && change ? `${change > 0 ? "+" : "−"}${inMs(Math.abs(change))} against the file's order` : "";
    const figures = [
      ["Iteration", isWhole ? inMs(found.makespan) : "none", !isWhole ? "it never ends" : said ? `the file says ${round(plan.said)} ms` : against || `${plan.number} micro-batches`],
      ["Bubble", isWhole ? percent(found.bubbleRate) : "none", "idle share of all devices"],
      ["Load bound", inMs(bound.ticks), load],
      ["Peak memory", most ? inMemory(most, limit) : "not known", most ? `device ${top}${limit ? `, of ${inMemory(limit, most)}` : ""}` : "no memory in the file"],
    ];
    $("figures").replaceChildren(...figures.map(([name, value, small]) => {
      const box = element("div");
      box.append(element("dt", name), element("dd", value));
      box.lastChild.append(element("small", small));
      return box;
    }));
    const [kind, first, rest] = status(found, bound);
    $("status").className = "status " + kind;
    $("status").replaceChildren(element("b", `${titleOf(plan)}. ${first}`), " " + rest);
  }

  function showPath(path) {
    $("bar").replaceChildren();
    $("parts").replaceChildren();
    if (!path) return;
    const whole = shown.found.makespan, waiting = path.parts.reduce((sum, part) => sum + part.waiting, 0);
    const segment = (share, className, text) => {
      const made = element("span", share > 0.06 ? text : "");
      made.className = className;
      made.style.flexGrow = share;
      return made;
    };
    path.parts.forEach((part, i) => {
      $("bar").append(segment(part.ticks / whole, "compute" + (i % 2), partName(part).replace(/devices? /, "")));
      const item = element("li"), name = partName(part);
      const waits = part.waiting ? `, ${inMs(part.waiting)} waiting for transfers` : "";
      item.append(element("b", name[0].toUpperCase() + name.slice(1)), ` ${part.stream === "compute" ? "computes" : "takes"} ${inMs(part.ticks)} in ${part.count} block${part.count > 1 ? "s" : ""}${waits}`);
      $("parts").append(item);
    });
    if (waiting) $("bar").append(segment(waiting / whole, "waits", "transfers"));
    const total = element("li"), sum = path.parts.reduce((ticks, part) => ticks + part.ticks, 0);
    total.append(element("b", "Together"), ` ${inMs(sum + waiting)}: ${inMs(sum)} of work, ${inMs(waiting)} of transfers`);
    $("parts").append(total);
  }

  // ---- Controls ----

  function element(name, text) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function fill(id, entries, value) {
    $(id).replaceChildren(...entries.map(([key, text]) => {
      const option = element("option", text);
      option.value = key;
      option.selected = String(key) === String(value);
      return option;
    }));
  }

  function showChoices() {
    fill("schedule", plans.map((plan, i) => {
      const found = Simulator.simulate(Simulator.prepare(plan), plan.orders, plan.memory);
      const fault = found.cycle.length ? "deadlock" : inMs(found.makespan, plan) + (found.overMemory.length ? ", too much memory" : "");
      return [i, `${titleOf(plan)}: ${fault}`];
    }), plans.indexOf(state.plan));
    $("schedule").hidden = plans.length < 2;
  }

  /** Return the name that the blocks of a stage share: that of its forward, or the name without its kind. */
  function forwardOf(name) {
    if (/^[BIWRCJX]\d/.test(name)) return FORWARDS[name[0]] + name.slice(1);
    return name.length > 1 ? name.replace(/_?[FBIWR]$/, "") : name;
  }

  /** Show the times of blocks, a row for each stage and a column for each kind. */
  function showTimes() {
    const { plan, edits } = state, kinds = Object.keys(KINDS).filter((kind) => plan.blocks.some((block) => block.kind === kind));
    const rows = new Map();
    for (const block of plan.blocks) {
      const row = forwardOf(block.name);
      if (!rows.has(row)) rows.set(row, new Map());
      const cell = rows.get(row);
      cell.set(block.kind, (cell.get(block.kind) || []).concat(block));
    }
    const head = element("tr"), all = element("tr");
    head.append(element("th", "Stage"), ...kinds.map((kind) => element("th", kind)));
    all.append(element("th", "all"), ...kinds.map((kind) => timeCell(plan.blocks.filter((block) => block.kind === kind), "all " + kind)));
    const body = [...rows].map(([name, cells]) => {
      const row = element("tr");
      row.append(element("th", name.replace(/^F(?=\d)/, "")), ...kinds.map((kind) => (cells.has(kind) ? timeCell(cells.get(kind), cells.get(kind)[0].name) : element("td"))));
      return row;
    });
    $("times").replaceChildren(head, all, ...body);
    $("transfer").value = edits.transfer === null ? "" : round(edits.transfer * plan.tickMs, 6);
    $("transfer").placeholder = transferWords(plan);
    const limits = limitsOf(), isSame = limits && limits.every((units) => units === limits[0]);
    $("limit-label").textContent = `Memory (${plan.unitMib ? "MiB" : "units"})`;
    $("limit").value = limits && isSame ? round(limits[0] * (plan.unitMib || 1), 3) : "";
    $("limit").placeholder = limits && !isSame ? "by device" : "no limit";
  }

  function transferWords(plan) {
    const ticks = [...new Set(plan.transfer.map((one) => one[2]))];
    return !ticks.length ? "0" : ticks.length === 1 ? round(ticks[0] * plan.tickMs, 6) : "as in the file";
  }

  function timeCell(blocks, label) {
    const cell = element("td"), input = element("input"), ticks = (block) => state.edits.times[block.name] ?? block.time;
    const isSame = blocks.every((block) => ticks(block) === ticks(blocks[0]));
    input.inputMode = "decimal";
    input.setAttribute("aria-label", `${label} (ms)`);
    input.value = isSame ? round(ticks(blocks[0]) * state.plan.tickMs, 6) : "";
    input.addEventListener("change", () => {
      const ms = Number(input.value);
      if (!(ms > 0) || ms > 1e9) return refuse(input, "a time is a number of ms above 0");
      const at = inTicks(ms);
      for (const { name } of blocks) state.edits.times[name] = at;
      for (const block of state.plan.blocks) if (state.edits.times[block.name] === block.time) delete state.edits.times[block.name];
      show();
    });
    cell.append(input);
    return cell;
  }

  function refuse(input, why) {
    showNotice(`${input.getAttribute("aria-label") || input.id}: '${input.value}' is not that: ${why}.`);
    showTimes();
  }

  /** Return ms in ticks; ticks are made finer where these are no whole number of them. */
  function inTicks(ms) {
    let times = 1;
    while (state.plan.tickMs / times > 1.5e-6 && Math.abs((ms * times) / state.plan.tickMs - Math.round((ms * times) / state.plan.tickMs)) > 1e-7) times *= 10;
    if (times > 1) {
      const { edits } = state, at = plans.indexOf(state.plan);
      const scaled = Object.entries(edits.times).map(([name, ticks]) => [name, ticks * times]);
      state.edits = { times: Object.fromEntries(scaled), transfer: edits.transfer === null ? null : edits.transfer * times };
      state.plan = Simulator.finer(state.plan, times);
      if (at >= 0) plans[at] = state.plan;
    }
    return Math.max(ms > 0 ? 1 : 0, Math.round(ms / state.plan.tickMs));
  }

  // ---- Timeline ----

  function svg(name, attributes, text) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  const isCompute = (lane) => lane.stream === "compute";
  const groupOf = (block) => (block.devices.length > 1 && KINDS["shared_" + block.kind] ? "shared_" : "") + block.kind;

  /** Return the top of each lane; a device's memory stands below its compute lane. */
  function tops(lanes) {
    let y = TOP;
    return lanes.map((lane) => {
      const top = y;
      y += ROW + (isCompute(lane) ? STRIP : 0) + GAP;
      return top;
    }).concat([y]);
  }

  /** Return the place of each run: its start, or for one that never starts, after all that do. */
  function places({ runs }, orders, found) {
    return orders.map((order) => {
      let free = found.end;
      return order.map(([block, n]) => {
        const key = Simulator.keyOf(block, n), { time } = runs.get(key), isStuck = !found.starts.has(key);
        const start = isStuck ? free : found.starts.get(key);
        if (isStuck) free += time;
        return { block, n, key, start, end: start + time, isStuck };
      });
    });
  }

  /** Return for each block whether it is of every second stage of its device: 0 or 1. */
  function variants(plan) {
    const seen = new Map();
    return plan.blocks.map((block) => {
      const key = block.devices[0] + (block.devices.length > 1 ? "shared" : ""), name = forwardOf(block.name);
      if (!seen.has(key)) seen.set(key, []);
      if (!seen.get(key).includes(name)) seen.get(key).push(name);
      return seen.get(key).indexOf(name) % 2;
    });
  }

  function draw(path) {
    const { problem, found, rows } = shown, { plan } = state;
    const end = Math.max(1, ...rows.flat().map((run) => run.end));
    const lengths = rows.flat().map((run) => run.end - run.start).sort((a, b) => a - b);
    const short = lengths[Math.floor(lengths.length / 20)] || 1;
    const room = Math.max(200, $("scroll").clientWidth - 4);
    const fit = Math.min(Math.max((room - 12) / end, LEAST_WIDTH / Math.max(short, end / 400)), 40000 / end);
    const scale = dragged ? dragged.scale : fit, top = tops(problem.lanes), height = top[top.length - 1];
    const width = Math.ceil(end * scale) + 12;
    const picture = svg("svg", { width, height, "aria-hidden": "true" });
    picture.append(patterns());
    drawAxis(picture, end, scale, height);
    const cycle = new Set(found.cycle), over = new Set(found.overMemory.map(([device, key]) => device + "," + key));
    const onPath = new Set(path && $("show-path").checked ? path.keys : []), variant = variants(plan);
    rows.forEach((row, lane) => {
      if (isCompute(problem.lanes[lane])) drawMemory(picture, lane, top[lane] + ROW + 2, scale, end);
      row.forEach((run, i) => {
        const isWrong = cycle.has(run.key) || over.has(problem.lanes[lane].device + "," + run.key);
        picture.append(drawRun(run, lane, i, top[lane], scale, isWrong, onPath.has(run.key), variant[run.block], short * scale >= 46));
      });
    });
    Object.assign(shown, { scale, picture, top });
    if (onPath.size) drawPath(path);
    drawWaits();
    const left = $("scroll").scrollLeft;
    $("scroll").replaceChildren(picture);
    $("scroll").scrollLeft = left;
    drawLabels(height);
  }

  function patterns() {
    const made = svg("defs", {});
    const stripes = svg("pattern", { id: "stripes", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
    stripes.append(svg("rect", { width: 2, height: 6, fill: "#fff", opacity: 0.28 }));
    const dots = svg("pattern", { id: "dots", width: 6, height: 6, patternUnits: "userSpaceOnUse" });
    dots.append(svg("circle", { cx: 2, cy: 2, r: 1, fill: "#000", opacity: 0.35 }));
    made.append(stripes, dots);
    return made;
  }

  function drawAxis(picture, end, scale, height) {
    const { tickMs } = state.plan, rough = (tickMs * 80) / scale, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((times) => times * power).find((ms) => ms >= rough) || 10 * power;
    for (let i = 0; i * step <= end * tickMs; i++) {
      const x = ((i * step) / tickMs) * scale;
      picture.append(svg("line", { class: "grid", x1: x, x2: x, y1: TOP - 4, y2: height }));
      picture.append(svg("text", { class: "axis", x: x + 2, y: 11 }, round(i * step, 6) + (i ? "" : " ms")));
    }
  }

  function drawRun(run, lane, i, y, scale, isWrong, isOnPath, variant, isWide) {
    const block = state.plan.blocks[run.block], [, colours, inks, pattern] = KINDS[groupOf(block)];
    const isChosen = chosen[0] === lane && chosen[1] === i;
    const classes = ["run", isOnPath && "path", isChosen && "chosen", isWrong && "wrong", run.isStuck && "stuck"];
    const box = { x: run.start * scale, y, width: Math.max(1, (run.end - run.start) * scale), height: ROW };
    const made = svg("g", { class: classes.filter(Boolean).join(" "), "data-lane": lane, "data-index": i });
    made.append(svg("title", {}, `${nameOf(run.key)}\n${run.isStuck ? "never starts" : `${inMs(run.start)} to ${inMs(run.end)}`}`));
    made.append(svg("rect", { ...box, class: "body", rx: 3, fill: colours[variant] }));
    if (pattern) made.append(svg("rect", { ...box, rx: 3, fill: `url(#${pattern})`, "pointer-events": "none" }));
    if (isOnPath) made.append(svg("rect", { class: "mark", x: box.x, y: y + ROW - 5, width: box.width, height: 5 }));
    if (box.width >= 10) {
      const text = isWide ? `${block.name}\u00b7${run.n}` : String(run.n);
      made.append(svg("text", { x: box.x + box.width / 2, y: y + ROW / 2 + 3, fill: inks[variant] }, text));
    }
    return made;
  }

  function drawMemory(picture, lane, y, scale, end) {
    const { problem, found } = shown, { device } = problem.lanes[lane], limit = limitsOf() ? limitsOf()[device] : null;
    const most = Math.max(1, ...found.peaks, ...(limitsOf() || [])), low = y + STRIP;
    const at = (units) => low - (Math.max(0, units) / most) * STRIP;
    const rows = [[0, state.plan.static[device], null], ...found.held[device]];
    rows.forEach(([tick, units], i) => {
      const until = i + 1 < rows.length ? rows[i + 1][0] : end;
      if (until <= tick || units <= 0) return;
      const isOver = limit !== null && units > limit;
      picture.append(svg("rect", { class: "memory" + (isOver ? " over" : ""), x: tick * scale, y: at(units), width: (until - tick) * scale, height: low - at(units) }));
    });
    if (limit !== null) picture.append(svg("line", { class: "limit", x1: 0, x2: end * scale, y1: at(limit), y2: at(limit) }));
  }

  const laneOf = (key) => shown.problem.runs.get(key).lanes[0];

  /** Draw the steps of the critical path from one lane to another. */
  function drawPath({ keys }) {
    const { found, problem, scale, picture, top } = shown;
    for (let i = 1; i < keys.length; i++) {
      const [a, b] = [keys[i - 1], keys[i]], [own, next] = [a, b].map((key) => problem.runs.get(key).lanes);
      if (own.some((lane) => next.includes(lane))) continue;
      const pairs = own.flatMap((lane) => next.map((other) => [lane, other])).sort((x, y) => Math.abs(x[0] - x[1]) - Math.abs(y[0] - y[1]));
      const [from, to] = pairs[0].map((lane) => top[lane] + ROW / 2);
      const x1 = (found.starts.get(a) + problem.runs.get(a).time) * scale, x2 = found.starts.get(b) * scale;
      picture.append(svg("path", { class: "step", d: `M${x1} ${from}L${x2} ${to}` }));
    }
  }

  /** Draw from what the chosen run waits for, and to what waits for it. */
  function drawWaits() {
    const { problem, found, rows, scale, picture, top } = shown, run = rows[chosen[0]] && rows[chosen[0]][chosen[1]];
    if (!run || run.isStuck) return;
    const endOf = (key) => found.starts.get(key) + problem.runs.get(key).time;
    const line = (from, to) => {
      if (!found.starts.has(from) || !found.starts.has(to)) return;
      const [x1, x2] = [endOf(from) * scale, found.starts.get(to) * scale], [y1, y2] = [from, to].map((key) => top[key === run.key ? chosen[0] : laneOf(key)] + ROW / 2);
      const bend = Math.max(8, Math.abs(x2 - x1) / 3), rise = y1 === y2 ? ROW : 0;
      picture.append(svg("path", { class: "wait", d: `M${x1} ${y1}C${x1 + bend} ${y1 - rise} ${x2 - bend} ${y2 - rise} ${x2} ${y2}` }));
    };
    problem.waits.get(run.key).forEach(([earlier]) => line(earlier, run.key));
    for (const [key, inputs] of problem.waits) if (inputs.some(([earlier]) => earlier === run.key)) line(run.key, key);
  }

  function drawLabels(height) {
    const { problem, found, top } = shown, isNarrow = window.innerWidth < 600, hasStreams = !problem.lanes.every(isCompute);
    const labels = svg("svg", { width: isNarrow ? (hasStreams ? 92 : 62) : 122, height });
    problem.lanes.forEach(({ device, stream }, lane) => {
      const limit = limitsOf() && limitsOf()[device], isOver = limit !== null && found.peaks[device] > limit;
      const name = isNarrow ? `Dev. ${device}` : `Device ${device}`;
      labels.append(svg("text", { class: stream === "compute" ? "row-name" : "row-stream", x: 0, y: top[lane] + 21 }, stream === "compute" ? name : isNarrow ? stream : `${device} ${stream}`));
      if (stream !== "compute" || !found.peaks[device]) return;
      const peak = inMemory(found.peaks[device], limit), of = limit === null || isNarrow ? peak : `${peak.replace(/ \w+$/, "")} of ${inMemory(limit, found.peaks[device])}`;
      labels.append(svg("text", { class: "row-memory" + (isOver ? " over" : ""), x: 0, y: top[lane] + ROW + 15 }, of));
    });
    $("rows").replaceChildren(labels);
  }

  function showLegend() {
    const { plan } = state, groups = new Set(plan.blocks.map(groupOf));
    const entries = [...groups].map((group) => [KINDS[group][0], KINDS[group][1][0], KINDS[group][3]]);
    if (variants(plan).includes(1)) entries.push(["lighter: another stage of the device", "#c9d3de", ""]);
    entries.push(["critical path", "#c2185b", ""]);
    const items = entries.map(([text, colour, pattern]) => {
      const item = element("li"), picture = svg("svg", { width: 16, height: 16, "aria-hidden": "true" });
      picture.append(svg("rect", { width: 16, height: 16, rx: 3, fill: colour }));
      if (pattern) picture.append(svg("rect", { width: 16, height: 16, rx: 3, fill: `url(#${pattern})` }));
      item.append(picture, text);
      return item;
    });
    items.push(element("li", "Numbers: micro-batches. Grey: memory; dashed: its limit."));
    $("legend").replaceChildren(...items);
  }

  // ---- Changes of the order ----

  function move(lane, from, to) {
    const { orders } = shown;
    if (to < 0 || to >= orders[lane].length || to === from) return;
    undone.push(state.orders);
    undone = undone.slice(-MOST_UNDO);
    state.orders = Simulator.moved(orders, lane, from, to);
    chosen = [lane, to];
    showResult();
    reveal();
  }

  function undo() {
    if (!undone.length) return;
    state.orders = undone.pop();
    showResult();
  }

  function reset() {
    if (!state.orders) return;
    undone.push(state.orders);
    state.orders = null;
    showResult();
  }

  function pick(lane, index) {
    lane = Math.min(Math.max(lane, 0), shown.rows.length - 1);
    chosen = [lane, Math.min(Math.max(index, 0), Math.max(0, shown.rows[lane].length - 1))];
    showResult();
    reveal();
  }

  /** Scroll so that the chosen run is seen. */
  function reveal() {
    const run = shown.rows[chosen[0]][chosen[1]], box = $("scroll");
    if (!run) return;
    const left = run.start * shown.scale, right = run.end * shown.scale;
    if (left < box.scrollLeft) box.scrollLeft = left - 20;
    if (right > box.scrollLeft + box.clientWidth) box.scrollLeft = right - box.clientWidth + 20;
  }

  /** Return the run of another lane that starts nearest to the chosen one. */
  function nearestOn(lane) {
    const row = shown.rows[lane], run = shown.rows[chosen[0]][chosen[1]], start = run ? run.start : 0;
    return row.reduce((best, one, i) => (Math.abs(one.start - start) < Math.abs(row[best].start - start) ? i : best), 0);
  }

  function onKey(event) {
    const [lane, index] = chosen;
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z") undo();
    else if (event.ctrlKey || event.metaKey || event.altKey) return;
    else if (event.key === "ArrowLeft") event.shiftKey ? move(lane, index, index - 1) : pick(lane, index - 1);
    else if (event.key === "ArrowRight") event.shiftKey ? move(lane, index, index + 1) : pick(lane, index + 1);
    else if (event.key === "ArrowUp" && lane > 0) pick(lane - 1, nearestOn(lane - 1));
    else if (event.key === "ArrowDown" && lane + 1 < shown.rows.length) pick(lane + 1, nearestOn(lane + 1));
    else if (event.key === "Home") pick(lane, 0);
    else if (event.key === "End") pick(lane, shown.rows[lane].length - 1);
    else return;
    event.preventDefault();
  }

  /** Begin to drag a block; by touch only the chosen one, so that others scroll. */
  function onDown(event) {
    const run = event.target.closest(".run");
    if (!run || event.button) return;
    const [lane, index] = [Number(run.dataset.lane), Number(run.dataset.index)];
    const wasChosen = chosen[0] === lane && chosen[1] === index;
    if (!wasChosen) pick(lane, index);
    if (event.pointerType === "touch" && !wasChosen) return;
    $("scroll").setPointerCapture(event.pointerId);  // the block itself is drawn anew while it is dragged
    dragged = { lane, from: index, to: index, x: event.clientX, row: shown.rows[lane], scale: shown.scale, before: state.orders, orders: shown.orders };
  }

  /** Show the schedule with the dragged block where the pointer is. */
  function onMove(event) {
    if (!dragged || Math.abs(event.clientX - dragged.x) < 4) return;
    const x = event.clientX - shown.picture.getBoundingClientRect().left;
    const rest = dragged.row.filter((_, i) => i !== dragged.from);
    const to = rest.filter((run) => ((run.start + run.end) / 2) * dragged.scale < x).length;
    if (to === dragged.to) return;
    dragged.to = to;
    state.orders = to === dragged.from ? dragged.before : Simulator.moved(dragged.orders, dragged.lane, dragged.from, to);
    chosen = [dragged.lane, to];
    showResult();
  }

  function onUp() {
    if (!dragged) return;
    const { from, to, before } = dragged;
    dragged = null;
    if (to === from) return;
    undone.push(before);
    undone = undone.slice(-MOST_UNDO);
    showResult();
  }

  function onCancel() {
    if (!dragged) return;
    state.orders = dragged.before;
    chosen = [dragged.lane, dragged.from];
    dragged = null;
    showResult();
  }

  // ---- Files ----

  /** Open files together: one with an order, and one of stages or layers. */
  async function open(files) {
    const texts = await Promise.all([...files].map((file) => file.text()));
    const read = [...files].map((file, i) => Readers.within(file.name, () => ({ name: file.name, ...Readers.read(file.name, texts[i]) })));
    const models = read.filter((file) => file.form === "stages"), orders = read.filter((file) => file.form !== "stages");
    for (const [kind, list] of [["stages", models], ["orders", orders]]) {
      if (list.length > 1) throw new Error(`${list[1].name}: is a second file of ${kind} beside ${list[0].name}; open them one after the other`);
    }
    const [model, order] = [models[0], orders[0]];
    if (model && order && order.form === "schedules") throw new Error(`${model.name}: goes with a torch CSV or a layout, not with ${order.name}; open it alone`);
    if (order && order.form === "schedules") order.plans[0].edited ? takeSaved(order.plans[0]) : take(order.plans);
    else if (order && order.form === "torch") takeTorch(order, model);
    else if (!order && torch && state.plan === plans[0] && model.pieces.length === torch.ranks.length) takeTorch(torch, model);
    else takeFiles(order, model);
  }

  function takeTorch(order, model) {
    const plan = Readers.within((model || order).name, () => Readers.planOfTorch(order, model, order.name));
    take([plan]);
    torch = order;
  }

  /** Show a layout, with the stages or layers that are opened beside it or were before. */
  function takeFiles(order, model) {
    const pieces = (model || stages || { pieces: [] }).pieces;
    const parts = pieces.length && pieces[0].part ? pieces.map((one) => one.part).join("") : "";
    const words = {
      text: order ? order.text : parts ? Readers.evenLayout(parts, 4) : "",
      devices: order ? order.devices : model.numDevices, group: order ? order.group : 0,
    };
    showLayout(words, model || stages, (model || order).name);
    $("layout-text").value = words.text;
    $("layout-devices").value = words.devices || "";
    $("layout-group").value = words.group || "";
    if (!order && parts) $("layout-hint").textContent += " Layers are divided evenly; write your own layout here.";
  }

  /** Show 1F1B or interleaved 1F1B of a layout. */
  function showLayout(words, model, name) {
    const number = Number($("layout-number").value);
    const plan = Readers.within(name, () => Readers.planOfLayout({ ...words, number }, model, model ? model.name : "layout"));
    take([plan]);
    stages = model;
    $("layout-hint").textContent = model ? `Costs from ${model.name}.` : "";
  }

  function onLayout(event) {
    event.preventDefault();
    attempt(() => {
      const whole = (id) => {
        const text = $(id).value.trim();
        if (text && !/^[1-9]\d{0,5}$/.test(text)) throw new Error(`${id.replace("layout-", "")}: '${text}' is no whole number above 0; write such as 8`);
        return Number(text || 0);
      };
      const text = $("layout-text").value.trim();
      if (!text && !stages) throw new Error("layout: is empty; write one, as Et*3|t*4|t*3L, or open a file of stages");
      showLayout({ text, devices: whole("layout-devices"), group: whole("layout-group") }, stages, "layout");
    });
  }

  function take(list) {
    torch = null;
    plans = list;
    begin(list[0]);
    $("example").value = "";
  }

  /** Show a plan in its own order. */
  function begin(plan) {
    state = freshState(plan);
    undone = [];
    chosen = [0, 0];
    $("scroll").scrollLeft = 0;
    showChoices();
    show();
  }

  function takeExample(index) {
    take(Readers.read("example", JSON.stringify(EXAMPLES[index])).plans);
    $("example").value = index;
  }

  /** Run something that may refuse its input; the page then stays as it was, with one line on why. */
  async function attempt(body) {
    try {
      $("notice").hidden = true;
      await body();
    } catch (error) {
      showNotice(error.message);
    }
  }

  function showNotice(text) {
    $("notice").textContent = text;
    $("notice").hidden = false;
  }

  // ---- The link: the state as JSON, deflated, in base64 for addresses ----

  const savedState = () => ({ ...state.plan, edited: { orders: state.orders, edits: state.edits, limits: state.limits } });

  async function pressed(bytes, stream) {
    return new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(stream)).arrayBuffer());
  }

  async function link() {
    const text = new TextEncoder().encode(JSON.stringify(savedState()));
    const bytes = await pressed(text, new CompressionStream("deflate-raw"));
    const letters = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
    return "#s=" + btoa(letters).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
  }

  let links = 0;

  /** Put the state into the address; nothing where it is too long for one. */
  async function putLink() {
    if (isOpening || dragged) return;
    const own = ++links, text = await link();
    if (own !== links) return;
    history.replaceState(null, "", text.length <= MOST_LINK ? text : location.pathname);
  }

  /** Take the state of the address, or the first example. */
  async function follow() {
    isOpening = true;
    const text = location.hash;
    await attempt(async () => {
      if (!text) return takeExample(0);
      let saved;
      try {
        const letters = atob(text.replace(/^#s=/, "").replace(/-/g, "+").replace(/_/g, "/"));
        const bytes = await pressed(Uint8Array.from(letters, (letter) => letter.charCodeAt(0)), new DecompressionStream("deflate-raw"));
        saved = Readers.readState(JSON.parse(new TextDecoder().decode(bytes)));
      } catch {
        if (!state) takeExample(0);
        throw new Error("The link is damaged or cut off; copy it again, whole. An example is shown.");
      }
      takeSaved(saved);
    });
    isOpening = false;
  }

  function takeSaved(saved) {
    const { edited, ...plan } = saved;
    take([plan]);
    Object.assign(state, edited);
    show();
  }

  async function share() {
    const text = await link();
    if (text.length > MOST_LINK) {
      $("done").textContent = `The link would have ${Math.ceil(text.length / 1024)} kB, and many programs cut links above 32 kB. Save the file instead, and open it with this page.`;
      return;
    }
    const done = () => { $("done").textContent = `The link is copied (${round(text.length / 1024, 1)} kB).`; };
    const failed = () => { $("done").textContent = "The browser does not allow copying here; copy the address of the page."; };
    history.replaceState(null, "", text);
    if (navigator.clipboard) navigator.clipboard.writeText(location.href).then(done, failed);
    else failed();
  }

  function save(name, data) {
    const anchor = element("a"), url = URL.createObjectURL(new Blob([JSON.stringify(data, null, 1) + "\n"]));
    Object.assign(anchor, { href: url, download: name });
    anchor.click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
    $("done").textContent = `${name} is saved where your browser keeps downloads.`;
  }

  /** Return whether the plan has runs that a schedule.json cannot say: of modes, or with times of their own. */
  const isOwn = () => Object.keys(state.plan.own || {}).length > 0 || state.plan.isDecided === true;

  function saveSchedule() {
    if (isOwn()) save("playground.json", { playground: savedState() });
    else save("schedule.json", Simulator.scheduleToFile(shown.problem, state.edits, shown.found, limitsOf()));
  }

  // ---- All together ----

  function showResult() {
    const { plan } = state, orders = state.orders || plan.orders, problem = Simulator.prepare(plan, state.edits);
    const found = Simulator.simulate(problem, orders, limitsOf());
    const opened = state.orders ? Simulator.simulate(problem, plan.orders, null).makespan : null;
    shown = { problem, orders, found, rows: places(problem, orders, found), openedMakespan: opened };
    const path = found.cycle.length ? null : Simulator.criticalPath(problem, found);
    showFigures(found, Simulator.loadBound(problem));
    draw(path);
    showPath(path);
    const [lane, index] = chosen, run = shown.rows[lane][index];
    $("selected").textContent = !run ? "This device runs no block."
      : `Chosen: ${nameOf(run.key)} on device ${problem.lanes[lane].device}, ${run.isStuck ? "it never starts" : `${inMs(run.start)} to ${inMs(run.end)}`}. Drag it, or use Earlier and Later.`;
    $("earlier").disabled = index === 0;
    $("later").disabled = index + 1 >= shown.rows[lane].length;
    $("undo").disabled = !undone.length;
    $("reset").disabled = !state.orders;
    $("as-opened").disabled = !isEdited() && state.limits === undefined;
    const isValid = !found.cycle.length && !found.overMemory.length;
    $("save").disabled = !isValid && !isOwn();
    $("save").textContent = isOwn() ? "Save playground.json" : "Save schedule.json";
    $("save-placement").disabled = isOwn();
    putLink();
  }

  function show() {
    showTimes();
    showResult();
    showLegend();
    $("notes").replaceChildren(...state.plan.notes.map((note) => element("li", note)));
  }

  if (typeof EXAMPLES === "undefined") return showNotice("examples.js is missing; make it with python docs/playground_data.py.");
  fill("example", [["", "Examples"], ...EXAMPLES.map(({ title }, i) => [i, title])], "");
  $("example").addEventListener("change", (event) => event.target.value && attempt(() => takeExample(Number(event.target.value))));
  $("schedule").addEventListener("change", (event) => attempt(() => begin(plans[Number(event.target.value)])));
  $("files").addEventListener("change", (event) => attempt(async () => {
    try {
      await open(event.target.files);
    } finally {
      event.target.value = "";
    }
  }));
  for (const name of ["dragover", "dragleave", "drop"]) {
    window.addEventListener(name, (event) => {
      event.preventDefault();
      document.body.classList.toggle("dropping", name === "dragover");
      if (name === "drop" && event.dataTransfer.files.length) attempt(() => open(event.dataTransfer.files));
    });
  }
  $("layout").addEventListener("submit", onLayout);
  $("transfer").addEventListener("change", () => {
    const text = $("transfer").value.trim(), ms = Number(text);
    if (text && !(ms >= 0 && ms <= 1e9)) return refuse($("transfer"), "a transfer is a number of ms, 0 or more");
    const ticks = text ? inTicks(ms) : null;
    state.edits.transfer = ticks;
    show();
  });
  $("limit").addEventListener("change", () => {
    const text = $("limit").value.trim(), value = Number(text);
    if (text && !(value >= 0)) return refuse($("limit"), "memory is a number, 0 or more");
    state.limits = text ? Array(state.plan.numDevices).fill(Math.floor(value / (state.plan.unitMib || 1) + 1e-9)) : null;
    show();
  });
  $("as-opened").addEventListener("click", () => {
    Object.assign(state, { edits: { times: {}, transfer: null }, limits: undefined });
    show();
  });
  $("show-path").addEventListener("change", showResult);
  $("earlier").addEventListener("click", () => move(chosen[0], chosen[1], chosen[1] - 1));
  $("later").addEventListener("click", () => move(chosen[0], chosen[1], chosen[1] + 1));
  $("undo").addEventListener("click", undo);
  $("reset").addEventListener("click", reset);
  $("share").addEventListener("click", share);
  $("save").addEventListener("click", saveSchedule);
  $("save-placement").addEventListener("click", () => save("placement.yaml", Simulator.placementToFile(state.plan, state.edits, limitsOf())));
  $("scroll").addEventListener("keydown", onKey);
  $("scroll").addEventListener("pointerdown", onDown);
  $("scroll").addEventListener("touchstart", (event) => {
    if (event.target.closest(".run.chosen")) event.preventDefault();  // it is dragged, and nothing scrolls
  }, { passive: false });
  window.addEventListener("pointermove", onMove);
  window.addEventListener("pointerup", onUp);
  window.addEventListener("pointercancel", onCancel);
  window.addEventListener("resize", () => state && showResult());
  window.addEventListener("hashchange", follow);
  follow();
})();
