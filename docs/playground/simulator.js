// Simulates the orders of a schedule's devices: earliest starts, memory, bubble, and what is wrong.
// Knows no page: it runs in a browser and in Node. Times are ticks, memory is in units, as in the project.
//
// A placement is {numDevices, blocks, transfer}: blocks are {name, kind, devices, time, memory, after}, with
// a unit of memory for each of the devices, and transfer is in ticks, between blocks on different devices.
// An order lists a device's runs, each [block's index, micro-batch].

"use strict";

const Simulator = (() => {
  const keyOf = (block, microBatch) => block + ":" + microBatch;

  /** Return the ticks between the end of a block and the start of another after it. */
  function transferTime(placement, earlier, later) {
    const [a, b] = [placement.blocks[earlier].devices, placement.blocks[later].devices];
    const isHere = a.length === b.length && a.every((device, i) => device === b[i]);
    return isHere ? 0 : placement.transfer;
  }

  /** Return what each run waits for: its inputs, and the run before it on each of its devices. */
  function waitsInOrder(placement, numMicroBatches, orders) {
    const waits = new Map();
    const index = new Map(placement.blocks.map((block, i) => [block.name, i]));
    placement.blocks.forEach((block, i) => {
      for (let n = 0; n < numMicroBatches; n++) {
        const before = block.after.map((name) => {
          const source = index.get(name);
          const ticks = placement.blocks[source].time + transferTime(placement, source, i);
          return [keyOf(source, n), ticks];
        });
        waits.set(keyOf(i, n), before);
      }
    });
    for (const order of orders) {
      for (let i = 1; i < order.length; i++) {
        const [block, n] = order[i - 1];
        waits.get(keyOf(...order[i])).push([keyOf(block, n), placement.blocks[block].time]);
      }
    }
    return waits;
  }

  /** Return the earliest start of each run that can start at all: the longest path to it. */
  function earliestStarts(waits) {
    const missing = new Map(), followers = new Map(), starts = new Map();
    for (const [key, before] of waits) {
      missing.set(key, before.length);
      for (const [earlier, ticks] of before) {
        if (!followers.has(earlier)) followers.set(earlier, []);
        followers.get(earlier).push([key, ticks]);
      }
    }
    const soonest = new Map();
    const ready = [...waits.keys()].filter((key) => !missing.get(key));
    for (let i = 0; i < ready.length; i++) {
      const start = soonest.get(ready[i]) || 0;
      starts.set(ready[i], start);
      for (const [later, ticks] of followers.get(ready[i]) || []) {
        soonest.set(later, Math.max(soonest.get(later) || 0, start + ticks));
        missing.set(later, missing.get(later) - 1);
        if (!missing.get(later)) ready.push(later);
      }
    }
    return starts;
  }

  /** Return runs that wait for each other in a circle, each for the one before it; empty where none do. */
  function cycleAmong(waits, starts) {
    let key = [...waits.keys()].find((each) => !starts.has(each));
    if (key === undefined) return [];
    const seen = new Map(), path = [];
    while (!seen.has(key)) {
      seen.set(key, path.length);
      path.push(key);
      key = waits.get(key).find(([earlier]) => !starts.has(earlier))[0];
    }
    return path.slice(seen.get(key)).reverse();
  }

  /** Return what a device holds from the start of each of its runs on, in its order. */
  function heldInOrder(placement, device, order) {
    let held = 0;
    return order.map(([block]) => {
      const { devices, memory } = placement.blocks[block];
      held += memory[devices.indexOf(device)];
      return held;
    });
  }

  /**
   * Simulate orders.
   *
   * Returns `starts` by key (of a deadlock, of the runs before it), `makespan` and `bubbleRate` (null in a
   * deadlock), `held` and `peaks` by device, `cycle` (keys that wait for each other), and `overMemory`, the
   * places [device, index in its order] from which on it holds more than `memory`, null for no limit.
   */
  function simulate(placement, numMicroBatches, orders, memory) {
    const waits = waitsInOrder(placement, numMicroBatches, orders);
    const starts = earliestStarts(waits);
    const cycle = cycleAmong(waits, starts);
    const held = orders.map((order, device) => heldInOrder(placement, device, order));
    const overMemory = [];
    held.forEach((units, device) => units.forEach((each, i) => {
      if (memory !== null && each > memory) overMemory.push([device, i]);
    }));
    let end = 0, busy = 0;
    for (const [key, start] of starts) {
      const block = placement.blocks[Number(key.split(":")[0])];
      end = Math.max(end, start + block.time);
      busy += block.time * block.devices.length;
    }
    const isWhole = !cycle.length;
    return {
      starts, cycle, held, overMemory, end,
      makespan: isWhole ? end : null,
      bubbleRate: isWhole ? 1 - busy / (placement.numDevices * end) : null,
      peaks: held.map((units) => Math.max(0, ...units)),
      spans: orders.map((order) => {
        const [first, last] = [order[0], order[order.length - 1]];
        if (!isWhole || !first) return 0;
        return starts.get(keyOf(...last)) + placement.blocks[last[0]].time - starts.get(keyOf(...first));
      }),
    };
  }

  /**
   * Return ticks that no schedule beats: each device's work, with the least that goes before its first block
   * and after its last one, and the longest path of one micro-batch.
   */
  function simpleBound(placement, numMicroBatches) {
    const index = new Map(placement.blocks.map((block, i) => [block.name, i]));
    const heads = new Map(), tails = placement.blocks.map(() => 0);
    const headOf = (i) => {
      if (!heads.has(i)) {
        heads.set(i, Math.max(0, ...placement.blocks[i].after.map((name) => {
          const source = index.get(name);
          return headOf(source) + placement.blocks[source].time + transferTime(placement, source, i);
        })));
      }
      return heads.get(i);
    };
    placement.blocks.forEach((_, i) => headOf(i));
    const byHead = placement.blocks.map((_, i) => i).sort((a, b) => heads.get(b) - heads.get(a));
    for (const i of byHead) {
      for (const name of placement.blocks[i].after) {
        const source = index.get(name);
        const after = transferTime(placement, source, i) + placement.blocks[i].time + tails[i];
        tails[source] = Math.max(tails[source], after);
      }
    }
    let bound = Math.max(...placement.blocks.map((block, i) => heads.get(i) + block.time + tails[i]));
    for (let device = 0; device < placement.numDevices; device++) {
      const here = placement.blocks.map((_, i) => i).filter(
        (i) => placement.blocks[i].devices.includes(device),
      );
      if (!here.length) continue;
      const work = here.reduce((sum, i) => sum + placement.blocks[i].time, 0) * numMicroBatches;
      const head = Math.min(...here.map((i) => heads.get(i)));
      const tail = Math.min(...here.map((i) => tails[i]));
      bound = Math.max(bound, head + work + tail);
    }
    return bound;
  }

  /** Return the orders of a schedule's text: a letter for each run, of its block among those of the device. */
  function ordersFromText(placement, texts) {
    return texts.map((text, device) => {
      const here = blocksOn(placement, device), runs = new Map();
      return [...text].map((letter) => {
        const block = here[LETTERS.indexOf(letter)];
        const n = runs.get(block) || 0;
        runs.set(block, n + 1);
        return [block, n];
      });
    });
  }

  const LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

  function blocksOn(placement, device) {
    return placement.blocks.map((_, i) => i).filter((i) => placement.blocks[i].devices.includes(device));
  }

  /** Return orders as text for a link: for each run its block's letter and its micro-batch, in base 36. */
  function ordersToLink(placement, orders) {
    return orders.map((order, device) => {
      const here = blocksOn(placement, device);
      return order.map(([block, n]) => LETTERS[here.indexOf(block)] + n.toString(36)).join("");
    }).join(".");
  }

  /** Return the orders of a link's text, or null where it is not of this placement and number. */
  function ordersFromLink(placement, numMicroBatches, text) {
    const texts = text.split(".");
    if (texts.length !== placement.numDevices) return null;
    const orders = [];
    for (const [device, each] of texts.entries()) {
      const here = blocksOn(placement, device), seen = new Set(), order = [];
      for (let i = 0; i + 1 < each.length; i += 2) {
        const block = here[LETTERS.indexOf(each[i])], n = parseInt(each[i + 1], 36);
        if (block === undefined || !(n < numMicroBatches)) return null;
        seen.add(keyOf(block, n));
        order.push([block, n]);
      }
      const number = here.length * numMicroBatches;
      if (each.length !== 2 * number || seen.size !== number) return null;
      orders.push(order);
    }
    return orders;
  }

  /**
   * Return the orders with one run of a device moved to another place of its order.
   *
   * A run on several devices keeps its new place among the others that these share: it is moved on each.
   */
  function moved(placement, orders, device, from, to) {
    const run = orders[device][from], passed = orders[device].slice(Math.min(from, to), Math.max(from, to) + 1);
    const isSame = (a, b) => a[0] === b[0] && a[1] === b[1];
    return orders.map((order, other) => {
      if (other === device) {
        const rest = order.filter((_, i) => i !== from);
        return [...rest.slice(0, to), run, ...rest.slice(to)];
      }
      const shared = passed.filter((each) => !isSame(each, run) && order.some((here) => isSame(here, each)));
      if (!shared.length || !order.some((each) => isSame(each, run))) return order;
      const rest = order.filter((each) => !isSame(each, run));
      const places = shared.map((each) => rest.findIndex((here) => isSame(here, each)));
      const at = order.findIndex((each) => isSame(each, run));
      const place = to > from ? Math.max(at, ...places.map((i) => i + 1)) : Math.min(at, ...places);
      return [...rest.slice(0, place), run, ...rest.slice(place)];
    });
  }

  /** Return a placement in the project's file form; a transfer for each pair of blocks that has one. */
  function placementToFile(placement, memory) {
    const index = new Map(placement.blocks.map((block, i) => [block.name, i]));
    const transfer = placement.blocks.flatMap((block, i) => block.after.map(
      (name) => [name, block.name, transferTime(placement, index.get(name), i)],
    )).filter(([, , ticks]) => ticks > 0);
    return {
      schema_version: 1,
      name: placement.name,
      num_devices: placement.numDevices,
      tick_ms: placement.tickMs,
      ...(memory === null ? {} : { memory: Array(placement.numDevices).fill(memory) }),
      blocks: placement.blocks.map((block) => ({
        name: block.name,
        kind: block.kind,
        devices: block.devices,
        time: block.time,
        memory: block.memory.every((units) => units === block.memory[0])
          ? block.memory[0]
          : Object.fromEntries(block.devices.map((device, i) => [device, block.memory[i]])),
        after: block.after,
      })),
      transfer,
    };
  }

  /** Return a schedule without a deadlock in the project's file form, as one made by hand. */
  function scheduleToFile(placement, numMicroBatches, found, memory) {
    const blocks = [...found.starts].map(([key, start]) => {
      const [block, n] = key.split(":").map(Number);
      return [placement.blocks[block].name, n, start];
    });
    blocks.sort((a, b) => a[2] - b[2] || a[1] - b[1] || (a[0] < b[0] ? -1 : 1));
    return {
      schema_version: 1,
      placement: placementToFile(placement, memory),
      num_micro_batches: numMicroBatches,
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
    keyOf, simulate, simpleBound, waitsInOrder, ordersFromText, ordersToLink, ordersFromLink, moved,
    placementToFile, scheduleToFile,
  };
})();

if (typeof module !== "undefined") module.exports = Simulator;
