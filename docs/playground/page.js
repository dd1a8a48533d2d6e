// The playground's page: controls, the timeline, and the state in the link. What runs when is of simulator.js.

"use strict";

(() => {
  const $ = (id) => document.getElementById(id);
  const SVG = "http://www.w3.org/2000/svg";

  const SHAPES = {
    v_shape: ["V", "One stage on each device: forward down the devices, backward up again."],
    wave_shape: ["Wave", "Two stages on each device: down the devices and up again."],
    x_shape: ["X", "Two pipelines in opposite directions. A micro-batch is one of each direction."],
    m_shape: ["M", "A V between an embedding's forward and backward on all devices."],
    nn_shape: ["NN", "An M with a second embedding on all devices in the middle."],
    k_shape: ["K", "Two branches on the two halves of the devices, joined on all."],
    loop_shape: ["Loop", "Two stages on each device, each time down the devices: interleaved."],
  };
  const HAND_MADE = {
    searched: "Searched", gpipe: "GPipe", one_f_one_b: "1F1B", eager_one_f_one_b: "Eager 1F1B",
    one_f_one_b_plus: "1F1B+", interleaved_one_f_one_b: "Interleaved 1F1B",
    chimera: "Chimera", dual_pipe: "DualPipe",
    zb_h1: "ZB-H1", zb_h2: "ZB-H2", zb_v: "ZB-V", v_half: "V-Half", v_min: "V-Min",
  };
  // Kinds of blocks: name, colours of the first and second stage of a device, of the text on them, pattern.
  const KINDS = {
    F: ["forward", ["#0072b2", "#6bb6e6"], ["#fff", "#111"], ""],
    B: ["backward", ["#e69f00", "#f8d488"], ["#111", "#111"], ""],
    I: ["input gradient", ["#c65300", "#f0a878"], ["#fff", "#111"], "stripes"],
    W: ["weight gradient", ["#f0e442", "#faf5b4"], ["#111", "#111"], "dots"],
    shared_F: ["forward on all devices", ["#00664c", "#b5e3d4"], ["#fff", "#111"], ""],
    shared_B: ["backward on all devices", ["#d98bb8", "#f5dcea"], ["#111", "#111"], "dots"],
  };
  const OPTIONS = { F: "forward_time", B: "backward_time", I: "input_time", W: "weight_time" };
  const SHARED_OPTIONS = {
    m_shape: "embedding", nn_shape: "embedding", k_shape: "join",
  };
  const LIGHTER = { x_shape: "the pipeline up the devices", nn_shape: "the second embedding" };
  const ROW = 34, STRIP = 16, GAP = 12, TOP = 20, LABELS = 92, LEAST_WIDTH = 11;
  const MOST_UNDO = 500;
  const OPENING = "p=nn-recomputed&d=4&n=8&m=6"; // proved, and shorter than all made by hand

  if (typeof SCHEDULES === "undefined") {
    showNotice("schedules.js is missing; make it with python docs/playground_data.py.");
    return;
  }

  const state = {
    preset: null, devices: 0, number: 0, memory: 0, schedule: "searched",
    times: {}, transfer: 0, limit: null, orders: null,
  };
  let undone = [], chosen = [0, 0], shown = null, dragged = null;

  // ---- What is chosen ----

  const presetsOf = (shape) => SCHEDULES.presets.filter((each) => each.shape === shape);
  const sizeOf = () => state.preset.devices[state.devices];
  const problemOf = () => sizeOf().micro_batches[state.number];
  const searchedOf = () => problemOf().searched.find((each) => each.memory === state.memory);
  const limitOf = () => (state.limit === null ? state.memory : state.limit);
  const keptOf = () => (
    state.schedule === "searched" ? searchedOf() : problemOf().hand_made[state.schedule]
  );
  const groupOf = (kind, devices) => (devices.length > 1 ? "shared_" : "") + kind;

  /** Return how many steps of a slider make a tick of the search: so that a unit time has tenths too. */
  const stepsOf = () => (state.preset.tick_ms >= 1 ? 10 : 1);

  /** Return the placement with the times of the sliders, in ticks of their steps where these are not the search's. */
  function placementOf() {
    const steps = isAsSearched() ? 1 : stepsOf();
    return {
      name: state.preset.shape,
      numDevices: state.devices,
      tickMs: state.preset.tick_ms / steps,
      transfer: state.transfer,
      blocks: sizeOf().blocks.map(([name, kind, devices, time, memory, after]) => ({
        name, kind, devices, memory, after, time: state.times[groupOf(kind, devices)] || time * steps,
      })),
    };
  }

  const ordersOf = (placement) => state.orders || Simulator.ordersFromText(placement, keptOf().orders);
  const isAsSearched = () => !Object.keys(state.times).length && !state.transfer;

  /** Take the nearest of what there is for each choice that is not there. */
  function settle() {
    const nearest = (values, wanted) => values.reduce(
      (best, each) => (Math.abs(each - wanted) < Math.abs(best - wanted) ? each : best),
    );
    const numbers = (of) => Object.keys(of).map(Number);
    state.devices = nearest(numbers(state.preset.devices), state.devices || 4);
    state.number = nearest(numbers(sizeOf().micro_batches), state.number || 8);
    state.memory = nearest(problemOf().searched.map((each) => each.memory), state.memory || state.devices);
    if (state.schedule !== "searched" && !problemOf().hand_made[state.schedule]) state.schedule = "searched";
  }

  /** Change what is scheduled: an order made by hand is of what was there before. */
  function choose(changes) {
    const before = state.preset;
    Object.assign(state, changes, { orders: null });
    undone = [];
    settle();
    if (before !== state.preset) Object.assign(state, { times: {}, transfer: 0 });
    if ("memory" in changes || before !== state.preset) state.limit = null;
    if (state.limit === state.memory) state.limit = null;
    chosen = [0, 0];
    show();
  }

  // ---- Words ----

  const round = (value) => String(Number(value.toFixed(2)));
  const inMs = (ticks, tickMs) => round(ticks * tickMs) + " ms";
  const spanOf = (placement, { start, end }) => (
    `${inMs(start, placement.tickMs)} to ${inMs(end, placement.tickMs)}`
  );
  const percent = (share) => (100 * share).toFixed(1) + " %";
  const nameOf = (placement, block, n) => placement.blocks[block].name + " of micro-batch " + n;

  function status(placement, found) {
    if (found.cycle.length) {
      const names = found.cycle.map((key) => nameOf(placement, ...key.split(":").map(Number)));
      const more = names.length > 4 ? ` and ${names.length - 4} more` : "";
      return ["bad", "Deadlock.", `${names.slice(0, 4).join(", ")}${more} wait for each other; each must run before the one after it, the last before the first.`];
    }
    if (found.overMemory.length) {
      const [device, i] = found.overMemory[0];
      const run = ordersOf(placement)[device][i];
      return ["bad", "Too much memory.", `Device ${device} holds ${found.held[device][i]} of ${limitOf()} when ${nameOf(placement, ...run)} starts.`];
    }
    const bound = boundOf(placement);
    if (found.makespan <= bound) {
      return ["good", "Proved shortest.", "No schedule of these blocks in this memory has a shorter makespan." + overByHand(placement, found)];
    }
    const above = `${percent(found.makespan / bound - 1)} above the bound of ${inMs(bound, placement.tickMs)}`;
    if (!isAsSearched()) {
      return ["", "Valid.", `The order is that for other times, and ${above}. The command below finds one for these.`];
    }
    const fits = [...problemOf().searched, ...Object.values(problemOf().hand_made)]
      .filter((each) => each.peak_memory <= limitOf());
    const best = Math.min(...fits.map((each) => each.makespan));
    if (best < found.makespan) {
      return ["", "Valid.", `It is ${above}. The shortest known here takes ${inMs(best, placement.tickMs)}.`];
    }
    return ["", "Valid.", `It is ${above}: whether a shorter one exists is not known.`];
  }

  /** Return what the searched schedule saves against the best made by hand that fits the memory. */
  function overByHand(placement, found) {
    if (state.schedule !== "searched" || state.orders || !isAsSearched()) return "";
    const fits = Object.entries(problemOf().hand_made).filter(([, each]) => each.peak_memory <= limitOf());
    const [name, best] = fits.sort(([, one], [, other]) => one.makespan - other.makespan)[0] || [];
    if (!best || best.makespan <= found.makespan) return "";
    return ` ${HAND_MADE[name] || name}, the best schedule made by hand that fits, takes ${inMs(best.makespan, placement.tickMs)}: the search saves ${percent(1 - found.makespan / best.makespan)}.`;
  }

  /** Return the greatest bound known; one for more memory holds for less too. */
  function boundOf(placement) {
    const simple = Simulator.simpleBound(placement, state.number);
    if (!isAsSearched()) return simple;
    const searched = problemOf().searched.filter((each) => each.memory >= limitOf());
    return Math.max(simple, problemOf().bound, ...searched.map((each) => each.bound));
  }

  function showFigures(placement, found) {
    const figures = [];
    const bound = boundOf(placement);
    const isWhole = found.makespan !== null;
    const ms = (ticks) => inMs(ticks, placement.tickMs);
    figures.push(["Makespan", isWhole ? ms(found.makespan) : "none", isWhole ? `${found.makespan} ticks` : "it never ends"]);
    figures.push(["Bubble", isWhole ? percent(found.bubbleRate) : "none", "idle share of all devices"]);
    figures.push(["Peak memory", `${Math.max(...found.peaks)} of ${limitOf()}`, "most of any device"]);
    figures.push(["Bound", ms(bound), "no schedule is shorter"]);
    const searched = searchedOf();
    if (state.schedule === "searched" && !state.orders && isAsSearched()) {
      const proved = searched.proved.startsWith("period") ? "proved shortest" : `at least ${ms(searched.period_bound)}`;
      figures.push(["Period", ms(searched.period), `per micro-batch, ${proved}`]);
    }
    $("figures").replaceChildren(...figures.map(([name, value, small]) => {
      const box = document.createElement("div");
      box.append(element("dt", name), element("dd", value));
      box.lastChild.append(element("small", small));
      return box;
    }));
    const [kind, first, rest] = status(placement, found);
    $("status").className = "status " + kind;
    $("status").replaceChildren(element("b", first), " " + rest);
  }

  function command(placement, found) {
    const words = ["python -m experiments.search"];
    const options = state.preset.options;
    if (state.transfer) {
      words.push("placement=file", "placement.path=placement.yaml");
    } else {
      words.push(`placement=${state.preset.shape}`, `placement.num_devices=${state.devices}`);
      if (options.split_backward) words.push("placement.split_backward=true");
      const seen = new Set();
      for (const { kind, devices, time } of placement.blocks) {
        const group = groupOf(kind, devices);
        if (seen.has(group)) continue;
        seen.add(group);
        const option = devices.length > 1 ? `${SHARED_OPTIONS[state.preset.shape]}_${OPTIONS[kind]}` : OPTIONS[kind];
        words.push(`placement.${option}=${time}`);
      }
      words.push(`placement.tick_ms=${placement.tickMs}`);
    }
    const fits = Math.max(...found.peaks) <= limitOf();
    if (state.schedule === "searched" || state.orders || fits) words.push(`search.memory=${limitOf()}`);
    words.push(`search.num_micro_batches=${state.number}`);
    if (state.schedule !== "searched" && !state.orders) words.push(`schedule=${state.schedule}`);
    else words.push(`search.time_limit_s=${SCHEDULES.time_limit_s}`);
    return words.join(" ");
  }

  function showCommand(placement, found) {
    const hints = [];
    if (state.transfer) hints.push("Save placement.yaml first: a transfer is part of a placement's file.");
    if (state.orders) {
      hints.push("This searches from new. Your own order: save schedule.json, and check it with the second line.");
    } else if (state.schedule === "searched") {
      hints.push("What a time limit cuts off may end otherwise on another machine; what is proved will not.");
    }
    $("command-hint").textContent = hints.join(" ");
    $("command").textContent = command(placement, found)
      + (state.orders ? "\npython -m experiments.check schedule=schedule.json" : "");
    const isValid = !found.cycle.length && !found.overMemory.length;
    $("save").disabled = !isValid;
    $("save").title = isValid ? "" : "Only a valid schedule has a file";
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

  function showControls() {
    const { shape } = state.preset;
    fill("shape", Object.entries(SHAPES).map(([key, [name]]) => [key, name]), shape);
    $("shape-hint").textContent = SHAPES[shape][1];
    fill("times", presetsOf(shape).map((each) => [each.name, each.times]), state.preset.name);
    $("times-hint").textContent = "From: " + state.preset.source + ".";
    fill("devices", Object.keys(state.preset.devices).map((each) => [each, each]), state.devices);
    fill("number", Object.keys(sizeOf().micro_batches).map((each) => [each, each]), state.number);
    fill("memory", problemOf().searched.map((each) => [each.memory, each.memory]), state.memory);
    $("memory-hint").textContent = "Memory of a device, in activations of one stage and micro-batch.";
    showSchedules();
    showSliders();
  }

  function showSchedules() {
    const rows = [["searched", searchedOf()], ...Object.entries(problemOf().hand_made)];
    $("schedules").replaceChildren(...rows.map(([name, kept]) => {
      const row = element("label");
      row.className = "choice";
      const radio = element("input");
      Object.assign(radio, { type: "radio", name: "schedule", value: name, checked: name === state.schedule });
      radio.addEventListener("change", () => choose({ schedule: name }));
      const needs = element("span", `memory ${kept.peak_memory}`);
      needs.className = "needs" + (kept.peak_memory > limitOf() ? " over-text" : "");
      row.append(radio, element("span", HAND_MADE[name] || name), element("span", inMs(kept.makespan, state.preset.tick_ms)), needs);
      return row;
    }));
  }

  function showSliders() {
    const base = new Map(), steps = stepsOf();
    for (const [, kind, devices, time] of sizeOf().blocks) base.set(groupOf(kind, devices), time * steps);
    const ms = (ticks) => inMs(ticks, state.preset.tick_ms / steps);
    const rows = [...base].map(([group, time]) => {
      const value = state.times[group] || time;
      return slider(group, KINDS[group][0], Math.ceil(time / 5), 3 * time, value, ms, (ticks) => {
        if (ticks === time) delete state.times[group];
        else state.times[group] = ticks;
      });
    });
    const longest = Math.max(...base.values());
    rows.push(slider("transfer", "transfer between devices", 0, longest, state.transfer, ms, (ticks) => {
      state.transfer = ticks;
    }));
    const most = Math.max(2 * state.memory, ...Object.values(problemOf().hand_made).map((each) => each.peak_memory));
    rows.push(slider("limit", "memory of a device", 1, most, limitOf(), String, (units) => {
      state.limit = units === state.memory ? null : units;
    }));
    $("sliders").replaceChildren(...rows);
  }

  function slider(id, name, least, most, value, words, set) {
    const row = element("div");
    row.className = "slider";
    const label = element("label", name[0].toUpperCase() + name.slice(1)), output = element("output", words(value));
    const input = element("input");
    label.htmlFor = input.id = "slide-" + id;
    Object.assign(input, { type: "range", min: least, max: most, step: 1 });
    input.value = value;
    input.setAttribute("aria-valuetext", words(value));
    input.addEventListener("input", () => {
      set(Number(input.value));
      output.textContent = words(Number(input.value));
      input.setAttribute("aria-valuetext", output.textContent);
      showSchedules();
      showResult();
    });
    row.append(label, output, input);
    return row;
  }

  // ---- Timeline ----

  function svg(name, attributes, text) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  const top = (device) => TOP + device * (ROW + STRIP + GAP);

  /** Return the place of each run: its start, or for one that never starts, after all that do. */
  function places(placement, orders, found) {
    return orders.map((order) => {
      let free = found.end;
      return order.map(([block, n]) => {
        const key = Simulator.keyOf(block, n), time = placement.blocks[block].time;
        const isStuck = !found.starts.has(key);
        const start = isStuck ? free : found.starts.get(key);
        if (isStuck) free += time;
        return { block, n, key, start, end: start + time, isStuck };
      });
    });
  }

  /** Return for each block whether it is of the second stage of its kind on its device: 0 or 1. */
  function variants(placement) {
    const seen = new Map();
    return placement.blocks.map((block) => {
      const key = groupOf(block.kind, block.devices) + block.devices[0];
      const earlier = seen.get(key) || 0;
      seen.set(key, earlier + 1);
      return { earlier, key, isTurned: block.kind !== "F" && placement.name !== "x_shape" };
    }).map(({ earlier, key, isTurned }) => (isTurned ? seen.get(key) - 1 - earlier : earlier));
  }

  function draw(placement, orders, found) {
    const rows = places(placement, orders, found);
    const end = Math.max(...rows.flat().map((each) => each.end));
    const shortest = Math.min(...placement.blocks.map((block) => block.time));
    const room = Math.max(200, $("scroll").clientWidth - 4);
    const scale = Math.max((room - 12) / end, LEAST_WIDTH / Math.max(shortest, end / 400));
    const width = Math.ceil(end * scale) + 12, height = top(placement.numDevices) + 4;
    const picture = svg("svg", { width, height, "aria-hidden": "true" });
    picture.append(patterns());
    drawAxis(picture, end, scale, height, placement.tickMs);
    const wrong = new Set(found.cycle);
    const over = new Set(found.overMemory.map(([device, i]) => device + "," + i));
    const variant = variants(placement);
    rows.forEach((row, device) => {
      drawMemory(picture, row, device, found, scale, end);
      row.forEach((run, i) => {
        const isWrong = wrong.has(run.key) || over.has(device + "," + i);
        picture.append(drawRun(placement, run, device, i, scale, isWrong, variant[run.block], shortest * scale >= 46));
      });
    });
    shown = { placement, orders, found, rows, scale, picture };
    drawWaits();
    const left = $("scroll").scrollLeft;
    $("scroll").replaceChildren(picture);
    $("scroll").scrollLeft = left;
    drawLabels(placement, found, height);
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

  function drawAxis(picture, end, scale, height, tickMs) {
    const rough = (tickMs * 80) / scale;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
    for (let i = 0; i * step <= end * tickMs; i++) {
      const x = ((i * step) / tickMs) * scale;
      picture.append(svg("line", { class: "grid", x1: x, x2: x, y1: TOP - 4, y2: height }));
      picture.append(svg("text", { class: "axis", x: x + 2, y: 11 }, round(i * step) + (i ? "" : " ms")));
    }
  }

  function drawRun(placement, run, device, i, scale, isWrong, variant, isWide) {
    const block = placement.blocks[run.block];
    const [, colours, inks, pattern] = KINDS[groupOf(block.kind, block.devices)];
    const isChosen = chosen[0] === device && chosen[1] === i;
    const classes = ["run", block.devices.length > 1 && "shared", isChosen && "chosen", isWrong && "wrong", run.isStuck && "stuck"];
    const box = { x: run.start * scale, y: top(device), width: Math.max(1, block.time * scale), height: ROW };
    const made = svg("g", { class: classes.filter(Boolean).join(" "), "data-device": device, "data-index": i });
    made.append(svg("title", {}, `${nameOf(placement, run.block, run.n)}\n${run.isStuck ? "never starts" : spanOf(placement, run)}`));
    made.append(svg("rect", { ...box, class: "body", rx: 3, fill: colours[variant] }));
    if (pattern) made.append(svg("rect", { ...box, rx: 3, fill: `url(#${pattern})`, "pointer-events": "none" }));
    if (box.width >= 10) {
      const text = isWide ? `${block.name}\u00b7${run.n}` : String(run.n);
      made.append(svg("text", { x: box.x + box.width / 2, y: box.y + ROW / 2 + 4, fill: inks[variant] }, text));
    }
    return made;
  }

  function drawMemory(picture, row, device, found, scale, end) {
    const most = Math.max(limitOf(), ...found.peaks, 1), low = top(device) + ROW + 2 + STRIP;
    const y = (units) => low - (units / most) * STRIP;
    row.forEach((run, i) => {
      const units = Math.max(0, found.held[device][i]);
      const until = i + 1 < row.length ? row[i + 1].start : end;
      const isOver = units > limitOf();
      picture.append(svg("rect", {
        class: "memory" + (isOver ? " over" : ""), x: run.start * scale, y: y(units),
        width: Math.max(0, (until - run.start) * scale), height: low - y(units),
      }));
    });
    picture.append(svg("line", { class: "limit", x1: 0, x2: end * scale, y1: y(limitOf()), y2: y(limitOf()) }));
  }

  /** Draw from what the chosen run waits for, and to what waits for it. */
  function drawWaits() {
    const { placement, rows, scale, picture } = shown;
    const run = rows[chosen[0]][chosen[1]];
    if (!run) return;
    const block = placement.blocks[run.block];
    const at = (name) => rows.flatMap((row, device) => row
      .filter((each) => each.n === run.n && placement.blocks[each.block].name === name)
      .map((each) => ({ ...each, device }))).slice(0, 1);
    const line = (from, a, to, b) => {
      const [x1, x2] = [from.end * scale, to.start * scale], [y1, y2] = [a, b].map((device) => top(device) + ROW / 2);
      const bend = Math.max(8, Math.abs(x2 - x1) / 3), rise = y1 === y2 ? ROW : 0;
      const curve = `M${x1} ${y1}C${x1 + bend} ${y1 - rise} ${x2 - bend} ${y2 - rise} ${x2} ${y2}`;
      picture.append(svg("path", { class: "wait", d: curve, "pointer-events": "none" }));
    };
    block.after.flatMap(at).forEach((each) => line(each, each.device, run, chosen[0]));
    placement.blocks.filter((each) => each.after.includes(block.name)).flatMap((each) => at(each.name))
      .forEach((each) => line(run, chosen[0], each, each.device));
  }

  function drawLabels(placement, found, height) {
    const labels = svg("svg", { width: LABELS, height });
    for (let device = 0; device < placement.numDevices; device++) {
      const isOver = found.peaks[device] > limitOf();
      labels.append(svg("text", { class: "row-name", x: 0, y: top(device) + 21 }, "Device " + device));
      labels.append(svg("text", { class: "row-memory" + (isOver ? " over" : ""), x: 0, y: top(device) + ROW + 14 }, `memory ${found.peaks[device]}/${limitOf()}`));
    }
    $("rows").replaceChildren(labels);
  }

  function showLegend(placement) {
    const groups = new Set(placement.blocks.map((block) => groupOf(block.kind, block.devices)));
    const hasTwo = variants(placement).some((each) => each === 1);
    const entries = [...groups].map((group) => [KINDS[group][0], KINDS[group][1][0], KINDS[group][3]]);
    if (hasTwo) entries.push([`lighter: ${LIGHTER[placement.name] || "the second stage of the device"}`, "#c9d3de", ""]);
    const items = entries.map(([text, colour, pattern]) => {
      const item = element("li"), picture = svg("svg", { width: 16, height: 16, "aria-hidden": "true" });
      picture.append(svg("rect", { width: 16, height: 16, rx: 3, fill: colour }));
      if (pattern) picture.append(svg("rect", { width: 16, height: 16, rx: 3, fill: `url(#${pattern})` }));
      item.append(picture, text);
      return item;
    });
    items.push(element("li", "Numbers are micro-batches. Grey strips: memory; dashed: its limit."));
    $("legend").replaceChildren(...items);
  }

  // ---- Changes of the order ----

  function move(device, from, to) {
    const { placement, orders } = shown;
    if (to < 0 || to >= orders[device].length || to === from) return;
    undone.push(state.orders);
    undone = undone.slice(-MOST_UNDO);
    state.orders = Simulator.moved(placement, orders, device, from, to);
    chosen = [device, to];
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

  function pick(device, index) {
    const number = shown.rows.length;
    device = Math.min(Math.max(device, 0), number - 1);
    chosen = [device, Math.min(Math.max(index, 0), shown.rows[device].length - 1)];
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

  /** Return the run of another device that starts nearest to the chosen one. */
  function nearestOn(device) {
    const row = shown.rows[device], start = shown.rows[chosen[0]][chosen[1]].start;
    return row.reduce((best, each, i) => (Math.abs(each.start - start) < Math.abs(row[best].start - start) ? i : best), 0);
  }

  function onKey(event) {
    const [device, index] = chosen;
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z") undo();
    else if (event.ctrlKey || event.metaKey || event.altKey) return;
    else if (event.key === "ArrowLeft") event.shiftKey ? move(device, index, index - 1) : pick(device, index - 1);
    else if (event.key === "ArrowRight") event.shiftKey ? move(device, index, index + 1) : pick(device, index + 1);
    else if (event.key === "ArrowUp" && device > 0) pick(device - 1, nearestOn(device - 1));
    else if (event.key === "ArrowDown" && device + 1 < shown.rows.length) pick(device + 1, nearestOn(device + 1));
    else if (event.key === "Home") pick(device, 0);
    else if (event.key === "End") pick(device, shown.rows[device].length - 1);
    else return;
    event.preventDefault();
  }

  function onDown(event) {
    const run = event.target.closest(".run");
    if (!run || event.button) return;
    const [device, index] = [Number(run.dataset.device), Number(run.dataset.index)];
    pick(device, index);
    dragged = event.pointerType === "touch" ? null : { device, from: index, to: index, x: event.clientX };
  }

  function onMove(event) {
    if (!dragged || Math.abs(event.clientX - dragged.x) < 4) return;
    const x = event.clientX - shown.picture.getBoundingClientRect().left;
    const row = shown.rows[dragged.device], rest = row.filter((_, i) => i !== dragged.from);
    const middles = rest.map((run) => ((run.start + run.end) / 2) * shown.scale);
    dragged.to = middles.filter((middle) => middle < x).length;
    const before = rest[dragged.to - 1], next = rest[dragged.to];
    const at = (before ? (next ? (before.end + next.start) / 2 : before.end) : 0) * shown.scale;
    shown.picture.querySelectorAll(".marker").forEach((each) => each.remove());
    const [y1, y2] = [top(dragged.device) - 4, top(dragged.device) + ROW + 4];
    shown.picture.append(svg("line", { class: "marker", x1: at, x2: at, y1, y2 }));
  }

  function onUp() {
    if (!dragged) return;
    const { device, from, to } = dragged;
    dragged = null;
    shown.picture.querySelectorAll(".marker").forEach((each) => each.remove());
    move(device, from, to);
  }

  // ---- The link ----

  function link() {
    const placement = placementOf(), words = new URLSearchParams();
    words.set("p", state.preset.name);
    words.set("d", state.devices);
    words.set("n", state.number);
    words.set("m", state.memory);
    words.set("s", state.schedule);
    for (const [group, ticks] of Object.entries(state.times)) words.set("t." + group, ticks);
    if (state.transfer) words.set("x", state.transfer);
    if (state.limit !== null) words.set("limit", state.limit);
    if (state.orders) words.set("o", Simulator.ordersToLink(placement, state.orders));
    return "#" + words;
  }

  /** Take the state from the link; what in it is wrong is said and left out. */
  function follow() {
    const words = new URLSearchParams(location.hash.slice(1) || OPENING), wrong = [];
    const whole = (name, least) => {
      if (!words.has(name)) return null;
      const value = Number(words.get(name));
      if (Number.isInteger(value) && value >= least && value <= 1e6) return value;
      wrong.push(name);
      return null;
    };
    const preset = SCHEDULES.presets.find((each) => each.name === words.get("p"));
    if (words.has("p") && !preset) wrong.push("p");
    Object.assign(state, {
      preset: preset || SCHEDULES.presets[0], devices: whole("d", 1) || 4, number: whole("n", 1) || 8,
      memory: whole("m", 1) || 4, schedule: words.get("s") || "searched", transfer: whole("x", 0) || 0,
      limit: whole("limit", 1), times: {}, orders: null,
    });
    const asked = { ...state };
    settle();
    for (const [name, key] of [["d", "devices"], ["n", "number"], ["m", "memory"], ["s", "schedule"]]) {
      if (words.has(name) && asked[key] !== state[key]) wrong.push(name);
    }
    for (const [, kind, devices] of sizeOf().blocks) {
      const group = groupOf(kind, devices), ticks = whole("t." + group, 1);
      if (ticks) state.times[group] = ticks;
    }
    if (words.has("o")) {
      state.orders = Simulator.ordersFromLink(placementOf(), state.number, words.get("o"));
      if (!state.orders) wrong.push("o");
    }
    undone = [];
    chosen = [0, 0];
    $("notice").hidden = true;
    if (wrong.length) showNotice(`The link has values that are not there (${[...new Set(wrong)].join(", ")}); the nearest are shown.`);
    show();
  }

  function showNotice(text) {
    $("notice").textContent = text;
    $("notice").hidden = false;
  }

  // ---- All together ----

  function showResult() {
    const placement = placementOf(), orders = ordersOf(placement);
    const found = Simulator.simulate(placement, state.number, orders, limitOf());
    showFigures(placement, found);
    draw(placement, orders, found);
    showLegend(placement);
    showCommand(placement, found);
    const [device, index] = chosen, run = shown.rows[device][index];
    const when = run.isStuck ? "it never starts" : spanOf(placement, run);
    $("selected").textContent = `Chosen: ${nameOf(placement, run.block, run.n)} on device ${device}, ${when}. Drag it, or move it with Shift and the arrow keys.`;
    $("earlier").disabled = index === 0;
    $("later").disabled = index + 1 >= shown.rows[device].length;
    $("undo").disabled = !undone.length;
    $("reset").disabled = !state.orders;
    $("as-searched").disabled = isAsSearched() && state.limit === null;
    history.replaceState(null, "", link());
  }

  function show() {
    showControls();
    showResult();
  }

  function copy(text, words) {
    const done = () => { $("done").textContent = words; };
    const failed = () => { $("done").textContent = "The browser does not allow copying here; choose the text and copy it."; };
    if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, failed);
    else failed();
  }

  function save(name, data) {
    const anchor = element("a"), url = URL.createObjectURL(new Blob([JSON.stringify(data, null, 1) + "\n"]));
    Object.assign(anchor, { href: url, download: name });
    anchor.click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
    $("done").textContent = `${name} is saved where your browser keeps downloads.`;
  }

  const fileOf = () => Simulator.scheduleToFile(shown.placement, state.number, shown.found, limitOf());

  $("shape").addEventListener("change", (event) => choose({ preset: presetsOf(event.target.value)[0] }));
  $("times").addEventListener("change", (event) => choose({ preset: SCHEDULES.presets.find((each) => each.name === event.target.value) }));
  for (const id of ["devices", "number", "memory"]) {
    $(id).addEventListener("change", (event) => choose({ [id]: Number(event.target.value) }));
  }
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  $("as-searched").addEventListener("click", () => {
    Object.assign(state, { times: {}, transfer: 0, limit: null });
    show();
  });
  $("earlier").addEventListener("click", () => move(chosen[0], chosen[1], chosen[1] - 1));
  $("later").addEventListener("click", () => move(chosen[0], chosen[1], chosen[1] + 1));
  $("undo").addEventListener("click", undo);
  $("reset").addEventListener("click", reset);
  $("copy").addEventListener("click", () => copy($("command").textContent, "The command is copied."));
  $("share").addEventListener("click", () => copy(location.href, "The link is copied."));
  $("save").addEventListener("click", () => save("schedule.json", fileOf()));
  $("save-placement").addEventListener("click", () => save("placement.yaml", Simulator.placementToFile(shown.placement, limitOf())));
  $("scroll").addEventListener("keydown", onKey);
  $("scroll").addEventListener("pointerdown", onDown);
  window.addEventListener("pointermove", onMove);
  window.addEventListener("pointerup", onUp);
  window.addEventListener("pointercancel", () => { dragged = null; });
  window.addEventListener("resize", showResult);
  window.addEventListener("hashchange", follow);
  follow();
})();
