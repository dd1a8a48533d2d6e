// What is under the cursor: a line through both figures, the block, and what each device holds.

class Readout {
  /** Take the place that both figures are in, the timeline, the unit of memory, and what GPUs wait at. */
  constructor(place, timeline, unit, waiting_w) {
    Object.assign(this, { place, timeline, unit, waiting_w });
    this.line = place.appendChild(element("div", { class: "crosshair" }));
    this.clock = place.appendChild(element("div", { class: "reading time" }));
    this.tip = place.appendChild(element("div", { class: "tip", role: "status" }));
    this.readings = [];
    this.hide();
    place.addEventListener("pointermove", (event) => this.show(event));
    place.addEventListener("pointerleave", () => this.hide());
  }

  hide() {
    this.place.classList.remove("is-read");
  }

  show(event) {
    const found = this.timeline.at(event);
    if (found === null) {
      this.hide();
      return;
    }
    this.place.classList.add("is-read");
    const box = this.place.getBoundingClientRect();
    const { blocks, held } = this.timeline.views;
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const topOf = (view) => view.el.getBoundingClientRect().top - box.top + view.frame.bbox.top;
    const bottom = topOf(held) + held.frame.bbox.height;
    this.move(this.line, x, topOf(blocks));
    this.line.style.height = `${bottom - topOf(blocks)}px`;
    this.clock.textContent = `${number(found.ms, 7)} ms`;
    const isRight = x > 0.7 * box.width;
    this.move(this.clock, x, bottom - held.frame.bbox.height - 2, isRight);
    const rowPx = held.frame.bbox.height / this.timeline.numHeldRows;
    while (this.readings.length < this.timeline.heldRows.length) {
      this.readings.push(this.place.appendChild(element("div", { class: "reading" })));
    }
    this.readings.forEach((reading, i) => {
      reading.hidden = i >= this.timeline.heldRows.length;
      if (reading.hidden) return;
      const { schedule, device, row } = this.timeline.heldRows[i];
      reading.textContent = `${number(schedule.heldAt(device, found.ms))} ${rowPx > 24 ? this.unit : ""}`;
      reading.style.fontSize = `${Math.min(Math.max(rowPx - 2, 8), 11)}px`;
      this.move(reading, x, topOf(held) + rowPx * (row + 0.5), isRight);
    });
    this.showTip(found, x, y, box);
  }

  /** Put a piece of text beside the line: right of it, or left where there is no room. */
  move(piece, x, y, isLeft = false) {
    piece.style.transform = `translate(${x}px, ${y}px)${isLeft ? " translateX(-100%)" : ""}`;
  }

  showTip({ name, schedule, device, of, ms }, x, y, box) {
    const i = name === "blocks" && device >= 0 ? schedule.runningAt(of, ms) : -1;
    this.tip.hidden = device < 0;
    if (device < 0) return;
    this.tip.replaceChildren(...this.facts(schedule, device, ms, i));
    const { offsetWidth, offsetHeight } = this.tip;
    const left = x + 18 + offsetWidth > box.width ? x - 18 - offsetWidth : x + 18;
    const top = y + 18 + offsetHeight > box.height ? y - 12 - offsetHeight : y + 18;
    this.tip.style.transform = `translate(${Math.max(left, 0)}px, ${Math.max(top, 0)}px)`;
  }

  facts(schedule, device, ms, i) {
    const held = `${number(schedule.heldAt(device, ms))} ${this.unit}`;
    const capacity = schedule.capacity ? ` of ${number(schedule.capacity[device])}` : "";
    const rows = [["device", device]];
    if (i < 0) {
      if (this.waiting_w !== null) rows.push(["power", `${number(this.waiting_w, 4)} W or more`]);
      rows.push(["memory held", held + capacity]);
      return [element("b", {}, "waiting"), table(rows)];
    }
    const block = schedule.blockOf(i);
    rows[0] = [block.devices.length > 1 ? "devices" : "device", block.devices.join(", ")];
    if (block.stream) rows.push(["stream", block.stream]);
    if (schedule.modeOf(i)) rows.push(["mode", schedule.modeOf(i)]);
    rows.push(["start", `${number(schedule.start_ms[i], 8)} ms`], ["end", `${number(schedule.end_ms[i], 8)} ms`]);
    rows.push(["takes", `${number(schedule.end_ms[i] - schedule.start_ms[i])} ms`]);
    if (schedule.clock_mhz !== null) {
      rows.push(["clock", `${number(schedule.clock_mhz[i])} MHz`], ["power", `${number(schedule.power_w[i], 4)} W`]);
    }
    rows.push(["memory held", held + capacity]);
    const kind = this.timeline.colours.looks.kinds[block.kind][0];
    return [element("b", {}, `${schedule.nameOf(i)}`), element("span", {}, kind), table(rows)];
  }
}

/** Return a table of names and values. */
function table(rows) {
  return element("table", {}, ...rows.map(([name, value]) => (
    element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, `${value}`)))));
}
