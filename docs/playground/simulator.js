// Simulates the orders of a schedule: earliest starts, memory, bubble, load bound, critical path, deadlocks.
// Knows no page: it runs in a browser and in Node. Times are ticks, memory is in units, as in the project.
//
// A plan is {name, numDevices, tickMs, unitMib, memory, static, number, blocks, transfer, own, orders}:
// - blocks: {name, kind, devices, time, memory, after, transient, stream}, memory with units for each device
// - transfer: triples [from, to, ticks]; number: of micro-batches; memory: by device, null for no limit
// - own: {time, memory, transient} of single runs that differ from their block, by the run's key
// - orders: for each lane its runs, each [block's index, micro-batch]; a lane is a stream of a device
// Edits are {times: ticks by block name, transfer: ticks between devices or null}.

"use strict";

const Simulator = (() => {
  const COMPUTE = "compute", NO_EDITS = { times: {}, transfer: null };
  const keyOf = (block, microBatch) => block + ":" + microBatch;

  /** Return the lanes, {device, stream}, compute of each device first, and those of each block. */
  function lanesOf(plan) {
    const lanes = Array.from({ length: plan.numDevices }, (_, device) => ({ device, stream: COMPUTE }));
    const owner = new Map();
    for (const { stream, devices } of plan.sharedStreams || []) {
      for (const device of devices) owner.set(device + stream, Math.min(...devices));
    }
    const at = (device, stream) => {
      const first = owner.has(device + stream) ? owner.get(device + stream) : device;
      const index = lanes.findIndex((lane) => lane.device === first && lane.stream === stream);
      return index < 0 ? lanes.push({ device: first, stream }) - 1 : index;
    };
    const names = (block) => block.devices.map((device) => [device, block.stream || COMPUTE]);
    plan.blocks.flatMap(names).sort((a, b) => a[0] - b[0]).forEach((pair) => at(...pair));
    return { lanes, ofBlock: plan.blocks.map((block) => [...new Set(names(block).map((pair) => at(...pair)))]) };
  }

  /** Return the transfer ticks between pairs of blocks, as a function of their indices. */
  function transfers(plan, edits) {
    const given = new Map(plan.transfer.map(([from, to, ticks]) => [from + ">" + to, ticks]));
    return (earlier, later) => {
      const [a, b] = [plan.blocks[earlier], plan.blocks[later]];
      if (edits.transfer === null) return given.get(a.name + ">" + b.name) || 0;
      const isHere = a.devices.length === b.devices.length && a.devices.every((device, i) => device === b.devices[i]);
      return isHere ? 0 : edits.transfer;
    };
  }

  /**
   * Return the problem of a plan: its lanes, its `runs` by key and, by key, the `waits` for inputs.
   *
   * A wait is [earlier run, transfer ticks]. A run that takes no time is left out and hands on its inputs. An
   * optimizer block (kind O) runs once, after its inputs of all micro-batches.
   */
  function prepare(plan, edits = NO_EDITS) {
    const { lanes, ofBlock } = lanesOf(plan);
    const index = new Map(plan.blocks.map((block, i) => [block.name, i]));
    const transferOf = transfers(plan, edits), last = plan.number - 1, all = new Map();
    plan.blocks.forEach((block, i) => {
      for (let n = block.kind === "O" ? last : 0; n <= last; n++) {
        const key = keyOf(i, n), own = (plan.own || {})[key] || {};
        const edited = edits.times[block.name], base = own.time === undefined ? block.time : own.time;
        const time = edited === undefined || !base ? base : Math.max(1, Math.round((base * edited) / block.time));
        all.set(key, {
          key, block: i, n, time, lanes: ofBlock[i], devices: block.devices,
          memory: own.memory || block.memory,
          transient: (own.transient === undefined ? block.transient : own.transient) || 0,
        });
      }
    });
    const waits = new Map();
    const inputsOf = (key) => {
      if (waits.has(key)) return waits.get(key);
      const { block, n } = all.get(key), found = new Map();
      for (const name of plan.blocks[block].after) {
        const source = index.get(name), ticks = transferOf(source, block);
        const isOnce = plan.blocks[source].kind === "O", isForAll = plan.blocks[block].kind === "O" && !isOnce;
        const first = isOnce ? last : isForAll ? 0 : n, end = isOnce || isForAll ? last : n;
        for (let m = first; m <= end; m++) {
          const earlier = keyOf(source, m);
          const passed = all.get(earlier).time ? [[earlier, 0]] : inputsOf(earlier);
          for (const [from, more] of passed) found.set(from, Math.max(found.get(from) || 0, ticks + more));
        }
      }
      waits.set(key, [...found]);
      return waits.get(key);
    };
    const runs = new Map([...all].filter(([, run]) => run.time));
    const kept = new Map([...runs.keys()].map((key) => [key, inputsOf(key)]));
    return { plan, lanes, runs, waits: kept };
  }

  /** Return the waits of each run, [earlier, ticks from start to start, whether it is of the order]. */
  function waitsInOrder({ runs, waits }, orders) {
    const found = new Map([...waits].map(([key, inputs]) => [
      key, inputs.map(([earlier, transfer]) => [earlier, runs.get(earlier).time + transfer, false]),
    ]));
    for (const order of orders) {
      for (let i = 1; i < order.length; i++) {
        const before = keyOf(...order[i - 1]);
        found.get(keyOf(...order[i])).push([before, runs.get(before).time, true]);
      }
    }
    return found;
  }

  /** Return the earliest start of each run that can start at all, and the wait that decides it. */
  function earliestStarts(waits) {
    const missing = new Map(), followers = new Map(), starts = new Map(), soonest = new Map(), causes = new Map();
    for (const [key, before] of waits) {
      missing.set(key, before.length);
      for (const [earlier, ticks, isOrder] of before) {
        if (!followers.has(earlier)) followers.set(earlier, []);
        followers.get(earlier).push([key, ticks, isOrder]);
      }
    }
    const ready = [...waits.keys()].filter((key) => !missing.get(key));
    for (let i = 0; i < ready.length; i++) {
      const start = soonest.get(ready[i]) || 0;
      starts.set(ready[i], start);
      for (const [later, ticks, isOrder] of followers.get(ready[i]) || []) {
        const before = soonest.has(later) ? soonest.get(later) : -1;
        if (start + ticks > before || (start + ticks === before && isOrder)) causes.set(later, ready[i]);
        soonest.set(later, Math.max(before, start + ticks));
        missing.set(later, missing.get(later) - 1);
        if (!missing.get(later)) ready.push(later);
      }
    }
    return { starts, causes };
  }

  /** Return runs that wait for each other in a circle, each for the one before it; empty where none do. */
  function cycleAmong(waits, starts) {
    let key = [...waits.keys()].find((waiting) => !starts.has(waiting));
    if (key === undefined) return [];
    const seen = new Map(), path = [];
    while (!seen.has(key)) {
      seen.set(key, path.length);
      path.push(key);
      key = waits.get(key).find(([earlier]) => !starts.has(earlier))[0];
    }
    return path.slice(seen.get(key)).reverse();
  }

  /** Return the memory of each device over time: [tick, units, key of a run that starts then or null]. */
  function memoryOverTime({ plan, runs }, starts) {
    const changes = Array.from({ length: plan.numDevices }, () => new Map());
    const change = (device, tick, units, key) => {
      const old = changes[device].get(tick) || [0, null];
      changes[device].set(tick, [old[0] + units, key || old[1]]);
    };
    for (const [key, start] of starts) {
      const { devices, memory, transient, time } = runs.get(key);
      devices.forEach((device, i) => {
        change(device, start, memory[i] + transient, key);
        if (transient) change(device, start + time, -transient, null);
      });
    }
    return changes.map((own, device) => {
      let held = plan.static[device];
      return [...own].sort((a, b) => a[0] - b[0]).map(([tick, [units, key]]) => [tick, held += units, key]);
    });
  }

  /**
   * Simulate orders.
   *
   * Returns `starts` by key (of a deadlock, of the runs before it), `causes`, the earlier run that decides a
   * start, `makespan` and `bubbleRate` (null in a deadlock), `held` and `peaks` by device, `cycle` (keys that
   * wait for each other), and `overMemory`, [device, key, units] of the starts at which a device holds more
   * than its `limits`, null for none.
   */
  function simulate(problem, orders, limits) {
    const { plan, runs } = problem, waits = waitsInOrder(problem, orders);
    const { starts, causes } = earliestStarts(waits);
    const cycle = cycleAmong(waits, starts), held = memoryOverTime(problem, starts);
    const overMemory = held.flatMap((rows, device) => rows
      .filter(([, units, key]) => limits !== null && key !== null && units > limits[device])
      .map(([, units, key]) => [device, key, units]));
    let end = 0, busy = 0;
    const first = Array(plan.numDevices).fill(Infinity), final = Array(plan.numDevices).fill(0);
    for (const [key, start] of starts) {
      const { block, time, devices } = runs.get(key);
      end = Math.max(end, start + time);
      if ((plan.blocks[block].stream || COMPUTE) === COMPUTE) busy += time * devices.length;
      for (const device of devices) {
        first[device] = Math.min(first[device], start);
        final[device] = Math.max(final[device], start + time);
      }
    }
    const isWhole = !cycle.length;
    return {
      starts, causes, cycle, held, overMemory, end,
      makespan: isWhole ? end : null,
      bubbleRate: isWhole ? 1 - busy / (plan.numDevices * end) : null,
      peaks: held.map((rows, device) => rows.reduce((most, row) => Math.max(most, row[1]), plan.static[device])),
      spans: first.map((start, device) => (isWhole && final[device] ? final[device] - start : 0)),
    };
  }

  /**
   * Return the critical path of a simulation without a deadlock: its keys in order of time, and its `parts`.
   *
   * A part is {devices, stream, ticks, count, waiting}: how long blocks of these devices are on the path, how
   * many, and how long they wait for transfers there. The ticks of all parts are the makespan.
   */
  function criticalPath({ runs, lanes }, found) {
    const endOf = (key) => found.starts.get(key) + runs.get(key).time;
    let key = [...found.starts.keys()].find((one) => endOf(one) === found.makespan);
    const keys = [], parts = new Map();
    while (key !== undefined) {
      const { devices, lanes: own, time } = runs.get(key), name = own.join(), earlier = found.causes.get(key);
      if (!parts.has(name)) parts.set(name, { devices, stream: lanes[own[0]].stream, ticks: 0, count: 0, waiting: 0 });
      const part = parts.get(name);
      part.ticks += time;
      part.count += 1;
      part.waiting += earlier === undefined ? 0 : found.starts.get(key) - endOf(earlier);
      keys.push(key);
      key = earlier;
    }
    const inOrder = [...parts.values()].sort((a, b) => a.devices[0] - b.devices[0] || a.devices.length - b.devices.length);
    return { keys: keys.reverse(), parts: inOrder };
  }

  /**
   * Return the load bound: ticks that no order of these blocks beats.
   *
   * It is a device's work, with the least that comes before its first block and after its last one, or the
   * longest chain of inputs, which has no `lane`.
   */
  function loadBound({ runs, waits, lanes }) {
    const heads = new Map(), tails = new Map([...runs.keys()].map((key) => [key, 0]));
    const inputs = new Map([...waits].map(([key, before]) => [
      key, before.map(([earlier, transfer]) => [earlier, runs.get(earlier).time + transfer, false]),
    ]));
    for (const [key, start] of earliestStarts(inputs).starts) heads.set(key, start);
    for (const key of [...heads.keys()].reverse()) {
      for (const [earlier, transfer] of waits.get(key)) {
        tails.set(earlier, Math.max(tails.get(earlier), transfer + runs.get(key).time + tails.get(key)));
      }
    }
    let best = { ticks: 0, lane: null };
    for (const [key, run] of runs) {
      const ticks = heads.get(key) + run.time + tails.get(key);
      if (ticks > best.ticks) best = { ticks, lane: null };
    }
    const loads = lanes.map(() => ({ work: 0, before: Infinity, after: Infinity }));
    for (const [key, run] of runs) {
      for (const lane of run.lanes) {
        loads[lane].work += run.time;
        loads[lane].before = Math.min(loads[lane].before, heads.get(key));
        loads[lane].after = Math.min(loads[lane].after, tails.get(key));
      }
    }
    loads.forEach((load, lane) => {
      const ticks = load.work && load.before + load.work + load.after;
      if (ticks >= best.ticks) best = { ticks, lane, ...load };
    });
    return best;
  }

  /**
   * Return the orders with one run of a lane moved to another place of its order.
   *
   * A run on several lanes keeps its new place among the others that these share: it is moved on each.
   */
  function moved(orders, lane, from, to) {
    const run = orders[lane][from], passed = orders[lane].slice(Math.min(from, to), Math.max(from, to) + 1);
    const isSame = (a, b) => a[0] === b[0] && a[1] === b[1];
    return orders.map((order, other) => {
      if (other === lane) {
        const rest = order.filter((_, i) => i !== from);
        return [...rest.slice(0, to), run, ...rest.slice(to)];
      }
      const shared = passed.filter((pair) => !isSame(pair, run) && order.some((here) => isSame(here, pair)));
      if (!shared.length || !order.some((pair) => isSame(pair, run))) return order;
      const rest = order.filter((pair) => !isSame(pair, run));
      const places = shared.map((pair) => rest.findIndex((here) => isSame(here, pair)));
      const at = order.findIndex((pair) => isSame(pair, run));
      const place = to > from ? Math.max(at, ...places.map((i) => i + 1)) : Math.min(at, ...places);
      return [...rest.slice(0, place), run, ...rest.slice(place)];
    });
  }

  /** Return the orders of lanes from the start of each run. */
  function ordersOf({ lanes, runs }, starts) {
    const orders = lanes.map(() => []);
    const byStart = [...starts].sort((a, b) => a[1] - b[1] || runs.get(a[0]).n - runs.get(b[0]).n);
    for (const [key] of byStart) {
      const { block, n, lanes: own } = runs.get(key);
      for (const lane of own) orders[lane].push([block, n]);
    }
    return orders;
  }

  /** Return a plan with ticks that are some times shorter; times become whole numbers of the new ones. */
  function finer(plan, times) {
    const scaled = (ticks) => Math.round(ticks * times);
    const own = Object.entries(plan.own || {}).map(([key, run]) => [
      key, run.time === undefined ? run : { ...run, time: scaled(run.time) },
    ]);
    return {
      ...plan,
      tickMs: Number((plan.tickMs / times).toPrecision(12)),
      blocks: plan.blocks.map((block) => ({ ...block, time: scaled(block.time) })),
      transfer: plan.transfer.map(([from, to, ticks]) => [from, to, scaled(ticks)]),
      own: Object.fromEntries(own),
      ...(plan.proved ? { proved: scaled(plan.proved) } : {}),
    };
  }

  /** Return a placement in the project's file form; limits are null or a number for each device. */
  function placementToFile(plan, edits, limits) {
    const index = new Map(plan.blocks.map((block, i) => [block.name, i])), transferOf = transfers(plan, edits);
    const transfer = plan.blocks.flatMap((block, i) => block.after.map(
      (name) => [name, block.name, transferOf(index.get(name), i)],
    )).filter(([, , ticks]) => ticks > 0);
    return {
      schema_version: 1,
      name: plan.name,
      num_devices: plan.numDevices,
      tick_ms: plan.tickMs,
      ...(limits === null ? {} : { memory: limits }),
      ...(plan.static.some((units) => units) ? { static_memory: plan.static } : {}),
      ...(plan.unitMib === null ? {} : { memory_unit_mib: plan.unitMib }),
      ...plan.more,
      blocks: plan.blocks.map(({ name, kind, devices, time, memory, after, transient, stream, more }) => ({
        name, kind, devices,
        time: edits.times[name] === undefined ? time : edits.times[name],
        memory: memory.every((units) => units === memory[0])
          ? memory[0]
          : Object.fromEntries(devices.map((device, i) => [device, memory[i]])),
        after,
        ...(transient ? { transient } : {}),
        ...(stream && stream !== COMPUTE ? { stream } : {}),
        ...more,
      })),
      transfer,
    };
  }

  /** Return a schedule without a deadlock in the project's file form, as one made by hand. */
  function scheduleToFile(problem, edits, found, limits) {
    const { plan, runs } = problem;
    const blocks = [...found.starts].map(([key, start]) => {
      const { block, n } = runs.get(key);
      return [plan.blocks[block].name, n, start];
    });
    blocks.sort((a, b) => a[2] - b[2] || a[1] - b[1] || (a[0] < b[0] ? -1 : 1));
    return {
      schema_version: 1,
      placement: placementToFile(plan, edits, limits),
      num_micro_batches: plan.number,
      search_status: "FEASIBLE",
      proved: "not proved",
      period: null,
      micro_batches_per_repetend: null,
      period_bound: null,
      repetend: null,
      certificate: null,
      makespan: found.makespan,
      makespan_bound: null,
      device_span: Math.max(...found.spans),
      device_span_bound: null,
      bubble_rate: found.bubbleRate,
      steady_bubble_rate: null,
      peak_memory: found.peaks,
      search_seconds: 0.0,
      blocks,
    };
  }

  return {
    keyOf, prepare, simulate, criticalPath, loadBound, waitsInOrder, moved, ordersOf, finer,
    placementToFile, scheduleToFile,
  };
})();

if (typeof module !== "undefined") module.exports = Simulator;
