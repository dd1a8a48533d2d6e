// Reads files into plans (see simulator.js): torch CSVs, Megatron-LM layouts, stages and layers, schedule.json,
// Perfetto traces. Knows no page. A wrong file throws an Error whose message names place and remedy in one line.

"use strict";

const Readers = (() => {
  const S = typeof Simulator === "undefined" ? require("./simulator.js") : Simulator;
  const MOST_RUNS = 20000, MOST_DEVICES = 1024;
  const FORMS = "give a torch CSV, a Megatron-LM layout, stages or layers (YAML or CSV), schedule.json, or trace.json of Perfetto";
  const PARTS = { embedding: "E", layer: "t", mtp: "m", loss: "L" };

  function require_(condition, message) {
    if (!condition) throw new Error(message);
  }
  const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
  const isWhole = (value, least) => Number.isInteger(value) && value >= least;

  // ---- Text ----

  /** Return what a file is: {form, ...}; see the readers of each form. */
  function read(name, text) {
    text = text.replace(/^\ufeff/, "");
    require_(text.trim(), "is empty; " + FORMS);
    if (/^\s*[{[]/.test(text)) return readJson(name, text);
    if (/--pipeline-model-parallel|^\s*E[Etm*(][^\n]*\|[^\n]*L\s*$/m.test(text)) return readLayout(text);
    const lines = text.split(/\r\n|\n|\r/);
    if (/(^|[,;\t"\s])forward_ms/i.test(lines[0]) && /[,;\t]/.test(lines[0])) return readLayers(lines);
    if (/^(stages|layers)\s*:/m.test(text)) return readStages(readYaml(lines));
    if (/^[\s,"]*\(?\d+[A-Z]/.test(text)) return readTorch(lines);
    throw new Error(`line 1: ${JSON.stringify(lines[0].slice(0, 40))} is of no form that this page reads; ${FORMS}`);
  }

  function readJson(name, text) {
    let data;
    try {
      data = JSON.parse(text);
    } catch (error) {
      throw new Error(`is no JSON (${error.message}); save the file again, whole`);
    }
    if (Array.isArray(data) || data.traceEvents) return { form: "schedules", plans: readPerfetto(data) };
    if (data.playground) return { form: "schedules", plans: [readState(data.playground)] };
    if (isObject(data.schedules)) {
      const plans = Object.entries(data.schedules).map(([title, one]) => within(`schedules.${title}`, () => readSchedule(one, title)));
      require_(plans.length, "schedules: has none; give one");
      return { form: "schedules", plans };
    }
    if (data.stages || data.layers) return readStages(data);
    if (data.blocks && data.num_devices) throw new Error("is a placement without an order; give the schedule.json of a search of it");
    require_(isObject(data.placement), "placement: is missing; give a schedule.json, compare.json or trace.json");
    return { form: "schedules", plans: [readSchedule(data, name)] };
  }

  function within(place, body) {
    try {
      return body();
    } catch (error) {
      const isOurs = error.constructor === Error;
      throw new Error(`${place}: ${isOurs ? error.message : "has fields of another type than this page reads; " + FORMS}`);
    }
  }

  // ---- YAML, the part of it that files of stages need: maps, lists, flow forms, comments ----

  function readYaml(lines) {
    const rows = [];
    lines.forEach((line, i) => {
      const text = line.replace(/(^|\s)#([^"']|"[^"]*"|'[^']*')*$/, "").trimEnd();
      if (!text.trim() || text === "---") return;
      require_(!/^\s*\t/.test(text), `line ${i + 1}: is indented by a tab; use spaces`);
      const before = rows[rows.length - 1], open = before ? unclosed(before.text) : 0;
      if (open) before.text += " " + text.trim();
      else rows.push({ number: i + 1, indent: text.search(/\S/), text: text.trim() });
    });
    let at = 0;
    const fault = (row) => new Error(`line ${row.number}: ${JSON.stringify(row.text.slice(0, 40))} is no YAML that this page reads; write "key: value"`);
    const value = (row, text) => {
      if (text) return flow(text, row, fault);
      return at < rows.length && (rows[at].indent > row.indent || (rows[at].indent === row.indent && /^- /.test(rows[at].text) && !/^- /.test(row.text)))
        ? block(rows[at].indent) : null;
    };
    const block = (indent) => {
      if (/^-( |$)/.test(rows[at].text)) {
        const list = [];
        while (at < rows.length && rows[at].indent === indent && /^-( |$)/.test(rows[at].text)) {
          const row = rows[at], rest = row.text.slice(1).trimStart();
          if (/^[\w"']+\s*:(\s|$)/.test(rest)) {
            rows[at] = { ...row, indent: indent + row.text.length - rest.length, text: rest };
            list.push(block(rows[at].indent));
          } else {
            at += 1;
            list.push(value(row, rest));
          }
        }
        return list;
      }
      const map = {};
      while (at < rows.length && rows[at].indent === indent) {
        const row = rows[at], found = /^["']?(\w+)["']?\s*:(?:\s+(.*))?$/.exec(row.text);
        if (!found) throw fault(row);
        require_(!(found[1] in map), `line ${row.number}: ${found[1]} is given twice; leave one out`);
        at += 1;
        map[found[1]] = value(row, found[2] || "");
      }
      return map;
    };
    const found = block(rows[0].indent);
    if (at < rows.length) throw fault(rows[at]);
    return found;
  }

  const unclosed = (text) => {
    const plain = text.replace(/"[^"]*"|'[^']*'/g, "");
    return (plain.match(/[[{]/g) || []).length - (plain.match(/[\]}]/g) || []).length;
  };

  /** Return the value of a YAML text in one line: a scalar, [list] or {map}. */
  function flow(text, row, fault) {
    let at = 0;
    const skip = () => { while (text[at] === " ") at += 1; };
    const scalar = (ends) => {
      skip();
      const quote = /["']/.test(text[at]) && text[at];
      const end = quote ? text.indexOf(quote, at + 1) + 1 : at + (text.slice(at).search(ends) + 1 || text.length - at + 1) - 1;
      if (end <= at) throw fault(row);
      const word = text.slice(at, end).trim();
      at = end;
      if (quote) return word.slice(1, -1);
      if (/^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(word)) return Number(word);
      return { true: true, false: false, null: null, "~": null }[word] ?? (/^(null|~)$/.test(word) ? null : word);
    };
    const item = (ends) => {
      skip();
      const close = { "[": "]", "{": "}" }[text[at]];
      if (!close) return scalar(ends);
      const found = close === "]" ? [] : {};
      at += 1;
      for (skip(); text[at] !== close; skip()) {
        if (close === "]") found.push(item(/[,\]]/));
        else {
          const key = String(scalar(/[:,}]/));
          skip();
          if (text[at] !== ":") throw fault(row);
          at += 1;
          require_(!(key in found), `line ${row.number}: ${key} is given twice; leave one out`);
          found[key] = item(/[,}]/);
        }
        skip();
        if (text[at] === ",") at += 1;
        else if (text[at] !== close) throw fault(row);
      }
      at += 1;
      return found;
    };
    const found = item(/$/);
    skip();
    if (at < text.length) throw fault(row);
    return found;
  }

  // ---- Stages and layers ----

  /** Return {form: "stages", pieces, transferMs, memoryMib, numDevices, notes} of a file's data. */
  function readStages(data) {
    require_(isObject(data), "is no map; give stages or layers");
    const known = ["schema_version", "stages", "layers", "num_devices", "memory_mib", "transfer_ms", "power_w", "host_memory_mib", "sequence_slices"];
    const other = Object.keys(data).find((key) => !known.includes(key));
    require_(!other, `${other}: is no field of a file of stages; leave it out`);
    const key = data.stages ? "stages" : "layers", rows = data[key];
    require_(Array.isArray(rows) && rows.length, `${key}: is no list; give one row for each`);
    require_(!data.sequence_slices, "sequence_slices: this page does not cut sequences; search them, and give the schedule.json");
    const pieces = rows.map((row, i) => {
      require_(isObject(row), `${key}[${i}]: is no map; give forward_ms and backward_ms`);
      return piece(row, (field) => `${key}[${i}].${field}`);
    });
    const notes = rows.some((row) => row.recompute_ms || row.offload_ms) ? ["Recomputation and offload are not shown."] : [];
    const memory = data.memory_mib === undefined || data.memory_mib === null ? null
      : [].concat(data.memory_mib).map((value) => number(inMib(value), 0, "memory_mib", "24GiB"));
    const transferMs = number(data.transfer_ms || 0, 0, "transfer_ms", "0.4");
    const numDevices = data.num_devices || 0;
    require_(isWhole(numDevices, 0), `num_devices: ${numDevices} is no whole number; write such as 4`);
    require_(numDevices || key === "stages", "num_devices: is missing beside layers; give the number of devices");
    return { form: "stages", pieces, transferMs, memoryMib: memory, numDevices, notes, isLayers: key === "layers" };
  }

  /** Return the same form of the lines of a CSV of layers. */
  function readLayers(lines) {
    const mark = [",", ";", "\t"].find((one) => lines[0].includes(one));
    const cells = (line) => line.split(mark).map((cell) => cell.trim().replace(/^"(.*)"$/, "$1"));
    const header = cells(lines[0]).map((cell) => cell.toLowerCase());
    const twice = header.find((cell, i) => cell && header.indexOf(cell) < i);
    require_(!twice, `line 1: the column ${twice} is there twice; leave one out`);
    const pieces = [];
    lines.forEach((line, i) => {
      if (!i || !line.replace(/[\s,;]/g, "")) return;
      const values = cells(line), row = {};
      require_(values.length <= header.length || values.slice(header.length).every((cell) => !cell),
        `line ${i + 1}: has ${values.length} cells for ${header.length} columns; leave some out`);
      header.forEach((column, k) => { if (values[k]) row[column] = values[k]; });
      const place = (field) => `line ${i + 1}, ${field}`, own = piece(row, place);
      if (row.kind !== undefined) {
        require_(PARTS[row.kind], `${place("kind")}: '${row.kind}' is none of ${Object.keys(PARTS).join(", ")}; write one of these`);
        own.part = PARTS[row.kind];
      }
      pieces.push(own);
    });
    require_(pieces.length, "has a header alone; give a line for each layer");
    require_(pieces.every((own) => !own.part === !pieces[0].part), "kind: is empty in some lines; write it in all");
    return { form: "stages", pieces, transferMs: 0, memoryMib: null, numDevices: 0, notes: [] };
  }

  function piece(row, place) {
    const get = (field, least, example) => (
      row[field] === undefined || row[field] === null || row[field] === "" ? 0 : number(inMib(row[field]), least, place(field), example)
    );
    const forward = get("forward_ms", 1e-9, "12.5"), whole = get("backward_ms", 0, "22.3");
    const input = get("input_gradient_ms", 1e-9, "13.1"), weight = get("weight_gradient_ms", 1e-9, "9.2");
    require_(forward, `${place("forward_ms")}: is missing; write such as 12.5`);
    require_(whole || (input && weight), `${place("backward_ms")}: is missing; give it, or input_gradient_ms and weight_gradient_ms`);
    require_(!whole || !weight, `${place("backward_ms")}: is there beside weight_gradient_ms; give either`);
    const backward = whole || exact(input + weight);
    return {
      forward, backward, input: input || backward / 2, knowsHalves: input > 0,
      activation: get("activation_mib", 0, "1400"), weights: get("weight_mib", 0, "5200"),
    };
  }

  function inMib(value) {
    const found = /^\s*([\d.]+)\s*([kmgt])(i?b)?\s*$/i.exec(value);
    if (!found) return value;
    const base = (found[3] || "").toLowerCase() === "b" ? 1000 : 1024;
    return (Number(found[1]) * base ** (1 + "kmgt".indexOf(found[2].toLowerCase()))) / 2 ** 20;
  }

  function number(value, least, place, example) {
    const isNumber = typeof value === "number" || /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(value);
    require_(isNumber && Number(value) >= least, `${place}: '${value}' is no number${least ? " above 0" : " of 0 or more"}; write such as ${example}`);
    return Number(value);
  }

  const exact = (value) => Math.round(value * 1e6) / 1e6;

  /** Return the power of ten, at most 1 and at least a millionth, of which all values are whole multiples. */
  function unitOf(values) {
    const places = [0, 1, 2, 3, 4, 5].find((power) => values.every((value) => Math.abs(value * 10 ** power - Math.round(value * 10 ** power)) < 1e-7));
    return Number(`1e-${places === undefined ? 6 : places}`);
  }

  /**
   * Return the plan, without orders, of a chain of stages, and the index of each block by name.
   *
   * Options: `ranks`, the device of each stage; `split`, stages whose backward is in halves; `number`.
   */
  function planOfChain(name, stages, { ranks, split, number: count, transferMs = 0, memoryMib = null, unitMib = 1 }) {
    const numDevices = Math.max(...ranks) + 1, last = stages.length - 1;
    const has = (i) => split.has(i);
    const ms = stages.flatMap((stage, i) => (has(i) ? [stage.forward, stage.input, stage.backward] : [stage.forward, stage.backward]));
    const tickMs = unitOf([transferMs, ...ms]);
    const unit = unitMib && unitOf([...(memoryMib || []), ...stages.flatMap((stage) => [stage.activation, stage.weights])]);
    const ticks = (value) => Math.max(1, Math.round(value / tickMs));
    const units = (value) => Math.ceil(exact(value / (unit || 1)));
    const forwards = [], backwards = [], back = (i) => (has(i) ? "I" : "B") + i;
    stages.forEach((stage, i) => {
      const common = { devices: [ranks[i]], transient: 0, stream: "compute" }, held = units(stage.activation);
      const after = i === last ? [`F${i}`] : [back(i + 1)];
      forwards.push({ name: `F${i}`, kind: "F", time: ticks(stage.forward), memory: [held], after: i ? [`F${i - 1}`] : [], ...common });
      const own = has(i)
        ? [["I", ticks(stage.input), 0, after], ["W", Math.max(1, ticks(stage.backward) - ticks(stage.input)), -held, [`I${i}`]]]
        : [["B", ticks(stage.backward), -held, after]];
      backwards.unshift(...own.map(([kind, time, memory, waits]) => ({ name: kind + i, kind, time, memory: [memory], after: waits, ...common })));
    });
    const blocks = [...forwards, ...backwards], hop = Math.ceil(exact(transferMs / tickMs));
    const rankOf = new Map(blocks.map((block) => [block.name, block.devices[0]]));
    const transfer = hop ? blocks.flatMap((block) => block.after.filter((source) => rankOf.get(source) !== block.devices[0]).map((source) => [source, block.name, hop])) : [];
    const weights = Array(numDevices).fill(0);
    stages.forEach((stage, i) => { weights[ranks[i]] = exact(weights[ranks[i]] + stage.weights); });
    const limits = memoryMib && (memoryMib.length === 1 ? Array(numDevices).fill(memoryMib[0]) : memoryMib);
    require_(!limits || limits.length === numDevices, `memory_mib: has ${limits && limits.length} numbers for ${numDevices} devices; give one each, or one`);
    return {
      title: name, name: "stages", numDevices, tickMs, unitMib: unit, number: count, blocks, transfer, own: {}, notes: [],
      memory: limits && limits.map((value) => Math.floor(exact(value / (unit || 1)))), static: weights.map(units),
    };
  }

  const indexOf = (plan) => new Map(plan.blocks.map((block, i) => [block.name, i]));

  function checkSize(runs) {
    require_(runs <= MOST_RUNS, `has ${runs} blocks to draw, and this page draws at most ${MOST_RUNS}; open the report.html of the command`);
  }

  // ---- torch's tables ----

  const ACTION = /^(\d+)(SEND_F|RECV_F|SEND_B|RECV_B|UNSHARD|RESHARD|REDUCE_GRAD|[FBIW])(\d*)$/;

  /** Return {form: "torch", rows, ranks, split, number} of the lines of a table; a row is [kind, stage, n]s. */
  function readTorch(lines) {
    const rows = [], ranks = [], split = new Set(), seen = new Map();
    for (const line of lines) {
      if (!line.trim() && rows.length && lines.indexOf(line) === lines.length - 1) continue;
      if (!line.trim()) continue;
      const rank = rows.push([]) - 1;
      line.split(",").forEach((text, i) => within(`row ${rank + 1} (rank ${rank}), cell ${i + 1}`, () => {
        for (const [stage, kind, n] of actionsOf(text.trim().replace(/^"(.*)"$/, "$1"))) {
          if (ranks[stage] === undefined) ranks[stage] = rank;
          require_(ranks[stage] === rank, `stage ${stage} is on rank ${ranks[stage]} too; put each stage on one rank`);
          if (kind === "I" || kind === "W") split.add(stage);
          const key = `${stage}${kind}${n}`;
          require_(!seen.has(key), `${key} is there a second time; leave one out`);
          seen.set(key, true);
          rows[rank].push([kind, stage, n]);
        }
      }));
    }
    require_(ranks.length, "has no computation in any cell; give a schedule that torch's _dump_csv wrote");
    const number = Math.max(...rows.flat().map(([, , n]) => n)) + 1;
    for (let stage = 0; stage < ranks.length; stage++) {
      require_(ranks[stage] !== undefined, `stage ${stage}: no cell computes it; number stages from 0 on`);
      for (let n = 0; n < number; n++) {
        const has = (kind) => seen.has(`${stage}${kind}${n}`);
        require_(has("F"), `stage ${stage}: has no forward of micro-batch ${n}; add ${stage}F${n} to the row of rank ${ranks[stage]}`);
        require_(has("B") !== has("I") && has("I") === has("W"), `stage ${stage}: the backward of micro-batch ${n} is not there once; write ${stage}B${n}, or ${stage}I${n} and ${stage}W${n}`);
      }
    }
    return { form: "torch", rows, ranks, split, number };
  }

  function actionsOf(text) {
    if (!text) return [];
    const overlap = /^\((.*)\)OVERLAP_F_B$/.exec(text);
    if (overlap) return overlap[1].split(";").flatMap(actionsOf);
    const found = ACTION.exec(text);
    require_(found, `'${text}' is no action; write such as 0F3, 0B3, 0I3, 0W3, 0SEND_F3, 1RECV_F3 or 0UNSHARD`);
    if (found[2].length > 1) return [];
    require_(found[3], `'${text}' names no micro-batch; write such as ${text}0`);
    return [[Number(found[1]), found[2], Number(found[3])]];
  }

  /** Return the plan of a table, with the times of a file of stages or 1 ms a forward and 2 ms a backward. */
  function planOfTorch(torch, stages, title) {
    const { rows, ranks, split, number: count } = torch, numStages = ranks.length;
    const unit = { forward: 1, backward: 2, input: 1, activation: 1, weights: 0 };
    require_(!stages || stages.pieces.length === numStages, `has ${stages && stages.pieces.length} stages, and the torch CSV has ${numStages}; give a file of as many`);
    checkSize(count * (2 * numStages + split.size));
    const plan = planOfChain(title, stages ? stages.pieces : ranks.map(() => unit), {
      ranks, split, number: count, ...(stages ? { transferMs: stages.transferMs, memoryMib: stages.memoryMib } : { unitMib: null }),
    });
    plan.numDevices = Math.max(plan.numDevices, rows.length);
    while (plan.static.length < plan.numDevices) plan.static.push(0);
    const index = indexOf(plan);
    plan.orders = rows.map((row) => row.flatMap(([kind, stage, n]) => (
      kind === "B" && split.has(stage) ? [["I", stage, n], ["W", stage, n]] : [[kind, stage, n]]
    )).map(([kind, stage, n]) => [index.get(kind + stage), n]));
    plan.notes = stages ? [...stages.notes] : ["Times are not in a torch CSV: a forward takes 1 ms, a backward 2 ms. Change them below, or open a file of stages."];
    if (stages && split.size && !stages.pieces.every((one) => one.knowsHalves)) plan.notes.push("The input gradient is assumed to take half of each backward.");
    return plan;
  }

  // ---- Layouts of Megatron-LM ----

  /** Return {form: "layout", text, devices, group} of arguments or of a layout alone; 0 where it is not said. */
  function readLayout(text) {
    const plain = text.replace(/['"\\]/g, " ");
    const value = (name) => (new RegExp(`--${name}[=\\s]+(\\S+)`).exec(plain) || [])[1];
    const layout = value("pipeline-model-parallel-layout") || (plain.match(/^\s*(E[^\s-]*L)\s*$/m) || [])[1];
    require_(layout, "--pipeline-model-parallel-layout: is missing; give it, as Et*3|t*4|t*3L");
    const whole = (name) => {
      const given = value(name);
      require_(given === undefined || /^[1-9]\d{0,5}$/.test(given), `--${name}: '${given}' is no whole number above 0; write the number itself`);
      return Number(given || 0);
    };
    return { form: "layout", text: layout, devices: whole("pipeline-model-parallel-size"), group: whole("microbatch-group-size-per-virtual-pipeline-stage") };
  }

  /** Return the stages of Megatron-LM's notation, a string of letters each; it must be as Megatron-LM takes it. */
  function stagesOfNotation(text) {
    let unrolled = text.replace(/[,\s]/g, "");
    for (const pattern of [/\(([^)]+)\)\*(\d+)/g, /(.)\*(\d+)/g]) {
      unrolled = unrolled.replace(pattern, (_, part, times) => {
        require_(Number(times) * part.length <= 100000, `layout: repeats ${part} ${times} times; check the number`);
        return part.repeat(Number(times));
      });
    }
    const wrong = /[^EtmL|]/.exec(unrolled);
    require_(!wrong, `layout: '${wrong && wrong[0]}' is no part of a model; use E, t, m, L, |, *n, ( ) and commas`);
    const parts = unrolled.replace(/\|/g, "");
    require_(parts[0] === "E", "layout: Megatron-LM wants the embedding first; begin with E");
    require_(parts.endsWith("L"), "layout: Megatron-LM wants the loss last; end with L");
    require_(/^Et*m*L$/.test(parts), "layout: has E, L or m at a wrong place; write one E, then t, then m, then one L");
    return unrolled.split("|");
  }

  /** Return the plan of a layout, {text, devices, number, group}; without text each piece is a stage. */
  function planOfLayout({ text, devices, number: count, group }, stages, title) {
    require_(isWhole(count, 1), "micro-batches: is no whole number above 0; write such as 16");
    if (!text) [stages, devices] = inStages(stages, devices || stages.numDevices || stages.pieces.length);
    const letters = text ? stagesOfNotation(text) : stages.pieces.map(() => "t");
    const parts = letters.join(""), p = devices || letters.length;
    require_(letters.length % p === 0, `layout: ${letters.length} stages are no multiple of ${p} pipeline ranks; change either`);
    const notes = [];
    let pieces = stages && stages.pieces;
    if (!pieces) {
      pieces = [...parts].map((part) => ({ forward: part === "t" || part === "m" ? 1 : 0, backward: part === "t" || part === "m" ? 2 : 0, activation: 1, weights: 0 }));
      notes.push("No file of layers is open: a layer's forward takes 1 ms and its backward 2 ms, the embedding and the loss nothing.");
    } else {
      notes.push(...stages.notes);
    }
    const kinds = pieces[0].part ? pieces.map((one) => one.part).join("") : null;
    if (kinds && text) {
      const says = (own) => `${own.split("t").length - 1} layers and ${own.split("m").length - 1} of MTP`;
      require_(kinds === parts, `layout: has ${says(parts)}, and the file of layers ${says(kinds)}; give both of the same model`);
    }
    let merged = pieces;
    if (text && pieces.length === parts.length) {
      let first = 0;
      merged = letters.map((own) => mergedPiece(pieces.slice(first, first += own.length)));
    } else {
      require_(pieces.length === letters.length, `has ${pieces.length} stages, and the layout has ${letters.length} stages of ${parts.length} parts; give one for each stage or each part`);
    }
    checkSize(2 * count * letters.length);
    const plan = planOfChain(title, merged, {
      ranks: letters.map((_, i) => i % p), split: new Set(), number: count,
      ...(stages ? { transferMs: stages.transferMs, memoryMib: stages.memoryMib } : { unitMib: null }),
    });
    const index = indexOf(plan), chunks = letters.length / p, size = chunks > 1 ? groupOf(p, count, group) : 0;
    plan.orders = Array.from({ length: p }, (_, rank) => megatronOrder(rank, p, chunks, count, size)
      .map(([kind, stage, n]) => [index.get(kind + stage), n]));
    plan.notes = notes;
    plan.title = `${chunks > 1 ? "Interleaved 1F1B" : "1F1B"} of ${title}`;
    return plan;
  }

  /** Return stages or layers as one stage for each device; layers such that the longest stage is the shortest. */
  function inStages(stages, devices) {
    const { pieces, isLayers } = stages, perDevice = pieces.length / devices;
    require_(devices <= pieces.length, `num_devices: ${devices} devices are more than the ${pieces.length} ${isLayers ? "layers" : "stages"}; give fewer`);
    require_(isLayers || Number.isInteger(perDevice), `num_devices: ${pieces.length} stages are no multiple of ${devices}; choose another number`);
    if (perDevice === 1) return [stages, devices];
    const sizes = isLayers ? divided(pieces.map((one) => one.forward + one.backward), devices) : Array(devices).fill(perDevice);
    let at = 0;
    const merged = sizes.map((size) => mergedPiece(pieces.slice(at, at += size)));
    const note = isLayers ? `Layers of each stage: ${sizes.join(", ")}.` : `Each device has ${perDevice} stages of the file as one.`;
    return [{ ...stages, pieces: merged, notes: [...stages.notes, note] }, devices];
  }

  /** Return numbers of layers such that the largest sum is least and then the smallest is the greatest. */
  function divided(times, parts) {
    const sums = times.reduce((all, time) => [...all, all[all.length - 1] + time], [0]);
    const best = (limit, join, isBetter) => {
      let row = [[join(), []]];
      for (let part = 0; part < parts; part++) {
        row = sums.map((sum, end) => {
          let found;
          for (let first = 0; first < end; first++) {
            if (!row[first] || sum - sums[first] > limit) continue;
            const value = join(row[first][0], sum - sums[first]);
            if (!found || isBetter(value, found[0])) found = [value, [...row[first][1], end - first]];
          }
          return found;
        });
      }
      return row[times.length];
    };
    const [least] = best(Infinity, (...values) => Math.max(0, ...values), (a, b) => a < b);
    return best(least * (1 + 1e-12), (...values) => Math.min(Infinity, ...values), (a, b) => a > b)[1];
  }

  function mergedPiece(pieces) {
    const sum = (field) => exact(pieces.reduce((total, one) => total + exact(one[field]), 0));
    return {
      forward: Math.max(1e-6, sum("forward")), backward: Math.max(1e-6, sum("backward")),
      activation: sum("activation"), weights: sum("weights"),
    };
  }

  /** Return the micro-batches that go through a chunk before the next one; by default the fewest that are allowed. */
  function groupOf(p, count, group) {
    require_(count >= p, `micro-batches: interleaved 1F1B on ${p} ranks needs at least ${p}, not ${count}; give more`);
    const fits = (size) => size >= p && !(count % size > 0 && count % size < p);
    if (!group) for (let size = p; ; size++) if (fits(size)) return size;
    require_(fits(group), `group: ${count} micro-batches in groups of ${group} leave a group of fewer than the ${p} ranks; change either`);
    return group;
  }

  /** Return a rank's order as Megatron-LM runs it, 1F1B or interleaved 1F1B, as [kind, stage, micro-batch]. */
  function megatronOrder(rank, p, chunks, count, group) {
    const visits = [], back = [];
    for (let first = 0; first < count; first += group || count) {
      const end = Math.min(count, first + (group || count));
      for (let chunk = 0; chunk < chunks; chunk++) {
        for (let n = first; n < end; n++) {
          visits.push(["F", chunk * p + rank, n]);
          back.push(["B", (chunks - 1 - chunk) * p + rank, n]);
        }
      }
    }
    const ahead = chunks > 1 ? 2 * (p - rank - 1) + (chunks - 1) * group : p - rank - 1;
    const warmup = Math.min(ahead, visits.length), order = visits.slice(0, warmup);
    for (let i = warmup; i < visits.length; i++) order.push(visits[i], back[i - warmup]);
    return [...order, ...back.slice(visits.length - warmup)];
  }

  /** Return a layout that divides layers evenly among devices, and ends on them. */
  function evenLayout(parts, devices) {
    const layers = parts.replace(/[EL]/g, "").length, p = Math.max(1, Math.min(devices, layers));
    const sizes = Array.from({ length: p }, (_, i) => Math.floor(layers / p) + (i < layers % p));
    let at = 0;
    const inner = parts.replace(/[EL]/g, "");
    return "E" + sizes.map((size) => inner.slice(at, at += size)).map((own) => own.replace(/t{3,}/g, (run) => `t*${run.length}`)).join("|") + "L";
  }

  // ---- schedule.json ----

  /** Return the plan of the data of a schedule.json. */
  function readSchedule(data, title) {
    const { placement: given, num_micro_batches: count } = data;
    require_(isWhole(count, 1), "num_micro_batches: is no whole number above 0; give a schedule.json");
    require_(Array.isArray(data.blocks), "blocks: is missing; give a schedule.json whose search found a schedule");
    const { schema_version: _, name, num_devices: numDevices, tick_ms: tickMs, memory, static_memory: held, memory_unit_mib: unitMib, modes, slowdown, shared_streams: sharedStreams, transfer, blocks: rows, ...more } = given;
    require_(isWhole(numDevices, 1), "placement.num_devices: is no whole number above 0; give the number of devices");
    require_(numDevices <= MOST_DEVICES, `placement.num_devices: this page draws at most ${MOST_DEVICES}, not ${numDevices}; open the report.html of the command`);
    require_(tickMs === undefined || tickMs > 0, `placement.tick_ms: ${JSON.stringify(tickMs)} is no number of ms above 0; correct it`);
    require_(!(slowdown || []).length, "placement.slowdown: this page does not simulate streams that slow each other down; open report.html");
    require_(Array.isArray(rows) && rows.length, "placement.blocks: is no list; give the blocks");
    const blocks = rows.map((row, i) => within(`placement.blocks[${i}]`, () => blockOf(row, numDevices)));
    const list = (value, field) => {
      if (value === undefined || value === null) return null;
      const found = Array.isArray(value) ? value : Array(numDevices).fill(value);
      require_(found.length === numDevices && found.every((one) => isWhole(one, 0)), `placement.${field}: is no list of ${numDevices} whole numbers; give one for each device`);
      return found;
    };
    const plan = {
      title, name: name || "placement", numDevices, tickMs: tickMs || 1, unitMib: unitMib || null, number: count, blocks,
      memory: list(memory, "memory"), static: list(held, "static_memory") || Array(numDevices).fill(0), more,
      transfer: (transfer || []).map((one) => (Array.isArray(one) ? one : [one.from, one.to, one.time])), own: {}, notes: [],
      ...(sharedStreams ? { sharedStreams } : {}),
    };
    const index = checkPlan(plan);
    (modes || []).forEach((decision, i) => takeModes(plan, index, decision.choices, (data.modes || [])[i] || [], i));
    const starts = new Map(), problem = S.prepare(plan);
    data.blocks.forEach((row, i) => {
      const isRow = Array.isArray(row) && index.has(row[0]) && isWhole(row[1], 0) && isWhole(row[2], 0);
      const key = isRow && S.keyOf(index.get(row[0]), row[1]);
      require_(isRow && problem.runs.has(key), `blocks[${i}]: ${JSON.stringify(row)} is no [name, micro_batch, start] of this placement; correct the row`);
      require_(!starts.has(key), `blocks[${i}]: ${row[0]} of micro-batch ${row[1]} is there a second time; leave one out`);
      starts.set(key, row[2]);
    });
    checkRuns(plan, problem, starts);
    plan.orders = S.ordersOf(problem, starts);
    if (Number.isInteger(data.makespan_bound)) plan.proved = data.makespan_bound;
    if (Number.isInteger(data.makespan)) plan.said = data.makespan * plan.tickMs;
    if (modes) plan.isDecided = true;
    return plan;
  }

  function blockOf(row, numDevices) {
    require_(isObject(row) && typeof row.name === "string", "has no name; give a block's fields");
    const { name, kind, devices, time, memory = 0, after = [], transient = 0, stream = "compute", ...more } = row;
    const check = (field, isRight, wanted) => require_(isRight, `${field}: ${row[field] === undefined ? "is missing" : JSON.stringify(row[field])}; give ${wanted}`);
    check("kind", ["F", "R", "B", "I", "W", "O"].includes(kind), "F, R, B, I, W or O");
    check("devices", Array.isArray(devices) && devices.length && devices.every((device) => isWhole(device, 0) && device < numDevices), `a list of devices below ${numDevices}`);
    check("time", isWhole(time, 0), "a whole number of ticks");
    check("after", Array.isArray(after), "a list of blocks' names");
    check("transient", isWhole(transient, 0), "a whole number of units");
    check("stream", typeof stream === "string", "the name of a stream");
    const units = unitsOf(memory, devices);
    check("memory", units.every(Number.isInteger), "a whole number of units, or one for each device");
    return { name, kind, devices, time, memory: units, after, transient, stream, more };
  }

  const unitsOf = (memory, devices) => devices.map((device) => Number(isObject(memory) ? memory[device] || 0 : memory));

  /** Take the modes that a decision of each micro-batch has, as runs of their own. */
  function takeModes(plan, index, choices, chosen, i) {
    require_(Array.isArray(chosen) && chosen.length === plan.number, `modes[${i}]: has ${chosen.length || 0} modes for ${plan.number} micro-batches; give one each`);
    chosen.forEach((mode, n) => {
      require_(choices[mode], `modes[${i}]: '${mode}' is no mode of this decision; correct it`);
      for (const [name, { time, memory, transient }] of Object.entries(choices[mode])) {
        const block = plan.blocks[index.get(name)];
        plan.own[S.keyOf(index.get(name), n)] = {
          ...(time === undefined ? {} : { time }), ...(transient === undefined ? {} : { transient }),
          ...(memory === undefined ? {} : { memory: unitsOf(memory, block.devices) }),
        };
      }
    });
  }

  /** Check names and dependencies of a plan's blocks; return the index of each by name. */
  function checkPlan(plan) {
    checkSize(plan.blocks.length * plan.number);
    const index = indexOf(plan);
    require_(index.size === plan.blocks.length, "placement.blocks: two have one name; rename one");
    const done = new Set();
    for (const { name, after } of plan.blocks) {
      const unknown = after.find((source) => !index.has(source));
      require_(unknown === undefined, `placement.blocks: ${name} is after '${unknown}', which is no block; correct it`);
    }
    for (let grew = true; grew;) {
      grew = false;
      for (const { name, after } of plan.blocks) {
        if (!done.has(name) && after.every((source) => done.has(source))) grew = !!done.add(name);
      }
    }
    const stuck = plan.blocks.find(({ name }) => !done.has(name));
    require_(!stuck, `placement.blocks: ${stuck && stuck.name} waits for itself; remove one of the 'after'`);
    return index;
  }

  function checkRuns(plan, problem, starts) {
    for (const [key, { block, n }] of problem.runs) {
      require_(starts.has(key), `blocks: ${plan.blocks[block].name} of micro-batch ${n} is missing; give every block of every micro-batch`);
    }
  }

  // ---- Perfetto ----

  const PARTNERS = { B: "F", I: "F", W: "I", C: "G", J: "G", X: "J" };

  /** Return the plans of the schedules in a Chrome trace that the project wrote. */
  function readPerfetto(data) {
    const events = Array.isArray(data) ? data : data.traceEvents, processes = new Map(), threads = new Map();
    require_(Array.isArray(events), "traceEvents: is no list; give a trace.json of export=perfetto");
    for (const event of events) {
      if (event.name === "process_name") processes.set(event.pid, Number(/\d+$/.exec(event.args.name) || event.pid - 1));
      if (event.name === "thread_name") threads.set(event.tid, { name: event.args.name, pid: event.pid, slices: [] });
    }
    for (const event of events) {
      const isBlock = event.ph === "X" && threads.has(event.tid) && event.args && event.args.block !== undefined && isWhole(event.args.micro_batch, 0);
      if (isBlock) threads.get(event.tid).slices.push(event);
    }
    const named = [...threads].filter(([, thread]) => thread.slices.length);
    require_(named.length, "traceEvents: no slice has a block and a micro_batch; give a trace.json that schedsearch wrote, as with export=perfetto");
    const names = [...new Set(named.map(([, thread]) => thread.name))].sort((a, b) => a.length - b.length);
    const titleOf = (name) => names.find((title) => name === title || name.startsWith(title + " "));
    const titles = [...new Set(named.sort((a, b) => a[0] - b[0]).map(([, thread]) => titleOf(thread.name)))];
    return titles.map((title) => within(title, () => planOfTrace(title, events, processes, new Map(
      named.filter(([, thread]) => titleOf(thread.name) === title)
        .map(([tid, thread]) => [tid, { ...thread, stream: thread.name.slice(title.length).replace(/ \(\d+\)$/, "").trim() || "compute" }])
        .filter(([, thread]) => thread.stream !== "waiting"),
    ))));
  }

  function planOfTrace(title, events, processes, threads) {
    const tickMs = 1e-6, ns = (us) => Math.round(us * 1000);
    const runs = new Map(), place = new Map();
    for (const [tid, { slices, stream, pid }] of threads) {
      for (const event of slices) {
        const { block, micro_batch: n, kind } = event.args, key = block + ":" + n, start = ns(event.ts);
        const run = runs.get(key), device = processes.get(pid);
        place.set(tid, (place.get(tid) || []).concat({ start, end: start + ns(event.dur), block, n }));
        if (run && run.start === start) run.devices.push(device);
        else if (!run || run.start < start) runs.set(key, { block, n, kind: kind || kindOf(block), start, end: start + ns(event.dur), devices: [device], stream });
      }
    }
    const all = [...runs.values()].sort((a, b) => a.start - b.start), count = Math.max(...all.map((run) => run.n)) + 1;
    const begin = all[0].start, ofBlock = new Map();
    for (const run of all) {
      run.devices.sort((a, b) => a - b);
      if (!ofBlock.has(run.block)) ofBlock.set(run.block, []);
      ofBlock.get(run.block).push(run);
    }
    checkSize(all.length);
    const blocks = [...ofBlock].map(([name, own]) => {
      const { kind, devices, stream } = own[0];
      const other = own.find((run) => run.devices.join() !== devices.join());
      require_(!other, `${name} of micro-batch ${other && other.n} is on other devices; give a trace with one placement`);
      require_(kind === "O" || own.length === count, `${name} is there for ${own.length} of ${count} micro-batches; give a whole iteration`);
      return { name, kind, devices, time: common(own.map((run) => run.end - run.start)), memory: devices.map(() => 0), after: [], transient: 0, stream };
    });
    const plan = {
      title, name: "trace", numDevices: Math.max(...processes.values()) + 1, tickMs, unitMib: null, number: count,
      blocks, memory: null, transfer: [], own: {}, notes: ["Dependencies within a device and transfer times are inferred from the trace."],
    };
    plan.static = Array(plan.numDevices).fill(0);
    const index = indexOf(plan);
    for (const { block, n, start, end } of all) {
      if (end - start !== blocks[index.get(block)].time) plan.own[S.keyOf(index.get(block), n)] = { time: end - start };
    }
    const gaps = arrowsOf(plan, events, place, runs, ns);
    inferOnDevice(plan, ofBlock);
    memoryOf(plan, events, processes, ofBlock, ns);
    checkPlan(plan);
    const problem = S.prepare(plan);
    plan.orders = S.ordersOf(problem, new Map(all.map((run) => [S.keyOf(index.get(run.block), run.n), run.start - begin])));
    plan.said = (Math.max(...all.map((run) => run.end)) - begin) * tickMs;
    transfersOf(plan, gaps);
    const lengths = [...all.map((run) => run.end - run.start), ...plan.transfer.map((one) => one[2])];
    let coarser = 1;
    while (coarser < 1e6 && lengths.every((ticks) => ticks % (10 * coarser) === 0)) coarser *= 10;
    return S.finer(plan, 1 / coarser);
  }

  const kindOf = (name) => (/^[FG]/.test(name) ? "F" : /^[IJ]/.test(name) ? "I" : /^[WX]/.test(name) ? "W" : /^[BC]|B$/.test(name) ? "B" : /^O/.test(name) ? "O" : "F");

  function common(values) {
    const counts = new Map();
    for (const value of values) counts.set(value, (counts.get(value) || 0) + 1);
    return [...counts].sort((a, b) => b[1] - a[1])[0][0];
  }

  /** Take the arrows of a trace as dependencies; return the shortest gap of each, as [from, to, ticks]. */
  function arrowsOf(plan, events, place, runs, ns) {
    for (const rows of place.values()) rows.sort((a, b) => a.start - b.start);
    const sources = new Map(), gaps = new Map();
    const at = (event) => (place.get(event.tid) || []).filter((run) => run.start <= ns(event.ts)).pop();
    for (const event of events) {
      if (event.ph === "s") sources.set(event.id, at(event));
      if (event.ph !== "f") continue;
      const from = sources.get(event.id), to = at(event);
      if (!from || !to || from.block === to.block) continue;
      const key = from.block + ">" + to.block, isLast = runs.get(from.block + ":" + from.n).start === from.start;
      if (isLast && to.start >= from.end) gaps.set(key, Math.min(gaps.has(key) ? gaps.get(key) : Infinity, to.start - from.end));
    }
    const block = new Map(plan.blocks.map((one) => [one.name, one]));
    return [...gaps].map(([key, ticks]) => {
      const [from, to] = key.split(">");
      block.get(to).after.push(from);
      return [from, to, ticks];
    });
  }

  /**
   * Take the transfers of a plan from the gaps of its arrows: the shortest gap between devices for all; or
   * that of each pair of devices, or of each arrow, where only these give the iteration of the trace.
   */
  function transfersOf(plan, gaps) {
    const devices = new Map(plan.blocks.map((block) => [block.name, block.devices.join()]));
    const isHere = ([from, to]) => devices.get(from) === devices.get(to);
    const groups = [(gap) => isHere(gap), ([from, to]) => devices.get(from) + ">" + devices.get(to), ([from, to]) => from + ">" + to];
    for (const groupOf of groups) {
      const least = new Map();
      for (const gap of gaps) least.set(groupOf(gap), Math.min(gap[2], least.has(groupOf(gap)) ? least.get(groupOf(gap)) : Infinity));
      plan.transfer = gaps.map((gap) => [gap[0], gap[1], least.get(groupOf(gap))]).filter((triple) => triple[2] > 0);
      const { makespan } = S.simulate(S.prepare(plan), plan.orders, null);
      if (makespan !== null && Math.abs(makespan * plan.tickMs - plan.said) < 1e-6) return;
    }
  }

  /** Add the dependencies within a device, which have no arrows, where every micro-batch keeps them. */
  function inferOnDevice(plan, ofBlock) {
    const end = (name, n) => (ofBlock.get(name).find((run) => run.n === n) || { end: Infinity }).end;
    const isBefore = (name, own) => own.every((run) => end(name, run.n) <= run.start);
    for (const block of plan.blocks) {
      const own = ofBlock.get(block.name), here = (other) => other !== block && other.devices.some((device) => block.devices.includes(device));
      const named = [PARTNERS[block.name[0]] + block.name.slice(1), block.name.slice(0, -1), ...(block.kind === "W" ? ["I" + block.name.slice(1)] : [])];
      const pair = plan.blocks.find((other) => other.name !== block.name && named.includes(other.name) && here(other) && isBefore(other.name, own));
      if (pair && !block.after.includes(pair.name)) block.after.push(pair.name);
      if (block.kind === "W" && pair) continue;
      if (block.after.length > (pair ? 1 : 0)) continue;
      const kinds = block.kind === "F" ? ["F"] : block.kind === "O" ? ["F", "B", "I", "W"] : ["F", "B", "I", "R"];
      const before = plan.blocks.filter((other) => here(other) && kinds.includes(other.kind) && isBefore(other.name, own)
        && (block.kind !== "F" || other.name[0] === block.name[0] || other.devices.length > 1));
      before.sort((a, b) => end(b.name, own[0].n) - end(a.name, own[0].n));
      if (before.length && !block.after.includes(before[0].name)) block.after.push(before[0].name);
    }
  }

  /** Take the memory of each block from the counters, where each of its runs changes them alike. */
  function memoryOf(plan, events, processes, ofBlock, ns) {
    const counters = events.filter((event) => event.ph === "C" && event.name.startsWith(plan.title + " memory ("));
    if (!counters.length) return;
    const changes = new Map(), held = new Map(), final = Array(plan.numDevices).fill(0);
    for (const { pid, ts, args } of counters.sort((a, b) => a.ts - b.ts)) {
      const device = processes.get(pid);
      if (!held.has(device)) held.set(device, null);
      changes.set(device + ":" + ns(ts), [args.value, held.get(device)]);
      held.set(device, args.value);
      final[device] = args.value;
    }
    const scale = unitOf(counters.map((event) => event.args.value));
    const found = new Map();
    for (const block of plan.blocks) {
      const units = block.devices.map((device) => {
        const own = new Set(ofBlock.get(block.name).map(({ start }) => {
          const row = changes.get(device + ":" + start);
          return row ? Math.round((row[0] - (row[1] === null ? final[device] : row[1])) / scale) : 0;
        }));
        return own.size === 1 ? [...own][0] : null;
      });
      if (units.includes(null)) {
        plan.notes.push("Memory is left out: the counter does not say which block holds it.");
        return;
      }
      found.set(block, units);
    }
    for (const [block, units] of found) block.memory = units;
    plan.unitMib = counters[0].name.endsWith("(MiB)") ? scale : null;
    plan.static = final.map((value) => Math.round(value / scale));
  }

  // ---- A state of the page, from a link or its file ----

  /** Return the plan of a saved state, checked as any file is. */
  function readState(state) {
    const { edited } = state || {};
    if (edited && edited.orders) readState({ ...state, edited: null, orders: edited.orders });
    require_(isObject(state) && Array.isArray(state.blocks) && Array.isArray(state.orders), "playground: is no state of this page; save it again");
    require_(!edited || isObject(edited.edits && edited.edits.times), "playground.edited: has no times; save it again");
    require_(isWhole(state.numDevices, 1) && state.numDevices <= MOST_DEVICES && isWhole(state.number, 1) && state.tickMs > 0, "playground: has no devices, micro-batches or ticks; save it again");
    state.blocks.forEach((row, i) => within(`playground.blocks[${i}]`, () => blockOf({ ...row, memory: 0 }, state.numDevices)));
    checkPlan(state);
    const problem = S.prepare(state), seen = new Set();
    require_(state.orders.length === problem.lanes.length, "playground.orders: are of another number of devices; save it again");
    state.orders.forEach((order, lane) => order.forEach(([block, n]) => {
      const run = problem.runs.get(S.keyOf(block, n));
      require_(run && run.lanes.includes(lane) && !seen.has(lane + "/" + run.key), `playground.orders[${lane}]: ${block}:${n} is no run of it, or there twice; save it again`);
      seen.add(lane + "/" + run.key);
    }));
    const all = [...problem.runs.values()].reduce((sum, run) => sum + run.lanes.length, 0);
    require_(seen.size === all, "playground.orders: some runs are missing; save it again");
    return state;
  }

  return { read, within, readState, planOfTorch, planOfLayout, evenLayout };
})();

if (typeof module !== "undefined") module.exports = Readers;
