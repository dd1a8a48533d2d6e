// Fills the figure of the timelines and that of memory with what is seen of them.

const MOST_RECTANGLES = 4000; // more than that are drawn as an image, a colour for each pixel
const LINES_PER_ROW = 7; // of the image, the first left empty
const TITLE_PX = 16; // height of a line of a title
const ROW_PX = [16, 30]; // least and greatest height of a row
const ROWS_PX = [560, 2400]; // height of all rows where a row's height leaves a choice, and at most

class Timeline {
  /** Take the document with the figures, the two views, the schedules, their colours and the unit of memory. */
  constructor(model, views, schedules, colours, unit) {
    Object.assign(this, { model, views, schedules, colours, unit });
    this.times = model("times");
    this.end_ms = this.times.end;
    this.titles = schedules.map((schedule) => schedule.title);
    const count = schedules.reduce((sum, { num_rows }) => sum + num_rows + 1, 0);
    this.rowHeight = Math.min(Math.max(ROWS_PX[0] / count, ROW_PX[0]), ROW_PX[1], ROWS_PX[1] / count);
    this.titleRows = 0;
    this.layOutBlocks();
    this.top = Math.max(1, ...schedules.flatMap((each) => [...each.peak, ...(each.capacity ?? [])]));
    this.marked = new Map(); // from schedule to a map from block to colour
    this.recolour();
    let isWaiting = false;
    this.times.change.connect(() => {
      if (!isWaiting) requestAnimationFrame(() => { isWaiting = false; this.draw(); });
      isWaiting = true;
    });
  }

  recolour() {
    this.rgb = new Map(this.schedules.map((schedule) => [schedule, this.colours.of(schedule)]));
  }

  /** Width of all times in pixels; Bokeh's own figure is that of its last layout. */
  get width() {
    const { el, model } = this.views.blocks;
    return Math.max(el.clientWidth - model.min_border_left - model.min_border_right, 1);
  }

  /** Return titles in lines of the figure's width, and the rows that the longest takes. */
  wrapped(titles, rowPx) {
    const lines = titles.map((title) => wrappedTitle(title, this.width));
    return [lines, Math.ceil((TITLE_PX * Math.max(...lines.map(({ length }) => length))) / rowPx)];
  }

  /** Give each schedule rows for its title, and a row for each stream of its devices; name as many as have room. */
  layOutBlocks() {
    const { axis_px, half_row: half } = this.colours.looks;
    const [lines, titleRows] = this.wrapped(this.titles, this.rowHeight);
    this.titleLines = lines;
    if (titleRows === this.titleRows) return;
    this.titleRows = titleRows;
    const names = new Map();
    const ticks = [];
    const every = Math.ceil(TITLE_PX / 1.3 / this.rowHeight);
    this.numRows = 0;
    for (const schedule of this.schedules) {
      schedule.firstRow = this.numRows + titleRows;
      this.numRows = schedule.rowOf(schedule.num_rows);
      schedule.row_names.forEach((name, row) => {
        names.set(schedule.rowOf(row), name);
        if (row % every === 0) ticks.push(schedule.rowOf(row));
      });
    }
    const rows = [...names.keys()];
    const plot = this.views.blocks.model;
    plot.y_range.setv({ start: this.numRows - 0.5, end: -0.5 });
    plot.left[0].ticker.ticks = ticks;
    plot.left[0].major_label_overrides = names;
    plot.height = axis_px + Math.round(this.numRows * this.rowHeight);
    this.model("rows").data = {
      left: rows.map(() => 0), right: rows.map(() => this.end_ms), top: rows.map((row) => row - half), bottom: rows.map((row) => row + half),
    };
  }

  /** Show the memory of all devices, or of the fullest one of each schedule. */
  showHeld(isAll) {
    this.isAllHeld = isAll;
    this.heldTitleRows = 0;
    this.layOutHeld();
  }

  /** Give each schedule rows for the title of its memory, and a row for each device shown. */
  layOutHeld() {
    const isAll = this.isAllHeld;
    const titles = this.schedules.map(({ title, fullest, capacity, peak }) => {
      const name = this.schedules.length > 1 ? title.split(":")[0] : "memory held";
      const most = `${number(peak[fullest])} ${capacity ? `of ${number(capacity[fullest])} ` : ""}${this.unit}`;
      return `${name}: ${most} on device ${fullest}${isAll ? "" : ", the fullest"}`;
    });
    const count = this.schedules.reduce((sum, { num_devices }) => sum + 1 + (isAll ? num_devices : 1), 0);
    this.heldRowHeight = isAll ? Math.min(Math.max(400 / count, 16), 52) : 30;
    const [lines, titleRows] = this.wrapped(titles, this.heldRowHeight);
    this.heldTitleLines = lines;
    if (titleRows === this.heldTitleRows) return;
    this.heldTitleRows = titleRows;
    this.heldRows = [];
    let row = 0;
    this.heldTitlesEnd = [];
    for (const schedule of this.schedules) {
      row += titleRows;
      this.heldTitlesEnd.push(row - 1);
      const devices = isAll ? schedule.peak.keys() : [schedule.fullest];
      for (const device of devices) this.heldRows.push({ schedule, device, row: row++ });
    }
    this.numHeldRows = row;
    const { axis_px, half_row: half } = this.colours.looks;
    const plot = this.views.held.model;
    const ticks = this.heldRows.map((each) => each.row);
    plot.y_range.setv({ start: row - 0.5, end: -0.5 });
    plot.left[0].ticker.ticks = ticks;
    plot.left[0].major_label_overrides = new Map(this.heldRows.map((each) => [each.row, `${each.device}`]));
    plot.height = axis_px + row * this.heldRowHeight;
    const ends = (value) => ticks.map(() => value);
    this.model("held-rows").data = {
      left: ends(0), right: ends(this.end_ms), top: ticks.map((each) => each - half), bottom: ticks.map((each) => each + half),
    };
    this.drawCapacity();
  }

  /** Show all times from the begin to an end in ms. */
  showAll(end_ms = this.end_ms) {
    this.times.setv({ start: 0, end: end_ms });
  }

  /** Magnify around the middle. */
  zoom(factor) {
    const { start, end } = this.times;
    const half = Math.max((end - start) / factor, this.times.min_interval) / 2;
    const middle = (start + end) / 2;
    this.times.setv({ start: Math.max(middle - half, 0), end: Math.min(middle + half, this.end_ms) });
  }

  /** Draw what is seen; as rectangles even where they are too many, if that is asked for. */
  draw(asRectangles = false) {
    const { start: from, end: to } = this.times;
    this.layOutBlocks();
    this.layOutHeld();
    this.perMs = this.width / (to - from);
    const seen = this.schedules.flatMap((schedule) => schedule.row_names.map((_, of) => {
      const [low, high] = schedule.seen(of, from, to);
      return { schedule, row: schedule.rowOf(of), low, high };
    }));
    const count = seen.reduce((sum, each) => sum + each.high - each.low, 0);
    this.isFar = count > MOST_RECTANGLES && !asRectangles;
    this.drawNear(this.isFar ? [] : seen);
    this.drawFar(this.isFar ? seen : [], from, to);
    this.drawHeld(from, to);
    this.drawTitles("titles", this.titleLines, this.schedules.map(({ firstRow }) => firstRow - 1), this.rowHeight);
    this.drawTitles("held-titles", this.heldTitleLines, this.heldTitlesEnd, this.heldRowHeight);
  }

  /** Write the lines of each title upwards from a row. */
  drawTitles(name, titles, rows, rowPx) {
    const half = this.colours.looks.half_row;
    const up = (lines, k) => ((lines.length - 1 - k) * TITLE_PX) / rowPx;
    this.model(name).data = {
      x: titles.flat().map(() => this.times.start),
      y: titles.flatMap((lines, i) => lines.map((_, k) => rows[i] + half - up(lines, k))),
      text: titles.flat(),
    };
  }

  /** Draw all that is seen as rectangles while something is done, such as writing a file. */
  async asRectangles(work) {
    this.draw(true);
    await new Promise(requestAnimationFrame);
    const done = await work();
    this.draw();
    return done;
  }

  /** Make the blocks paler, so that marks stand out. */
  fade(alpha) {
    this.isFaded = alpha < 1;
    for (const renderer of this.views.blocks.model.renderers) {
      if (renderer.data_source.name === "near") renderer.glyph.fill_alpha = { value: alpha };
      if (renderer.data_source.name === "far") renderer.glyph.global_alpha = { value: alpha };
    }
  }

  drawNear(rows) {
    const near = { left: [], right: [], top: [], bottom: [], color: [], line: [] };
    const labels = { x: [], y: [], text: [], color: [] };
    const half = this.colours.looks.half_row;
    for (const { schedule, row, low, high } of rows) {
      const rgb = this.rgb.get(schedule);
      const marked = this.marked.get(schedule);
      for (let place = low; place < high; place++) {
        const i = schedule.rows[place];
        const [start, end, colour] = [schedule.start_ms[i], schedule.end_ms[i], css(rgb[i])];
        const width = (end - start) * this.perMs;
        near.left.push(start);
        near.right.push(end);
        near.top.push(row - half);
        near.bottom.push(row + half);
        near.color.push(colour);
        near.line.push(width < 3 ? colour : "#ffffff");
        const text = `${schedule.micro_batch[i]}${schedule.modeOf(i).slice(0, 1)}`;
        if (width > 7 * text.length + 4 && this.rowHeight > 12) {
          labels.x.push((Math.max(start, this.times.start) + Math.min(end, this.times.end)) / 2);
          labels.y.push(row);
          labels.text.push(text);
          labels.color.push(marked?.has(i) ? "#ffffff" : this.isFaded ? "#1d2329" : readableOn(rgb[i]));
        }
      }
    }
    this.model("near").data = near;
    this.model("labels").data = labels;
  }

  /** Draw an image in which each pixel has the colour of the block at its middle. */
  drawFar(rows, from, to) {
    const empty = { image: [], x: [], y: [], dw: [], dh: [] };
    if (!rows.length) {
      this.model("far").data = empty;
      return;
    }
    const { ndarray } = Bokeh.require("core/util/ndarray");
    const width = Math.round(this.width * (window.devicePixelRatio || 1));
    const scale = width / (to - from);
    const pixels = new Uint32Array(width * this.numRows * LINES_PER_ROW);
    for (const { schedule, row, low, high } of rows) {
      const rgb = this.rgb.get(schedule);
      const line = width * (row * LINES_PER_ROW + 1);
      for (let place = low; place < high; place++) {
        const i = schedule.rows[place];
        const first = Math.max(Math.ceil((schedule.start_ms[i] - from) * scale - 0.5), 0);
        const last = Math.min(Math.ceil((schedule.end_ms[i] - from) * scale - 0.5), width);
        if (last <= first) continue;
        const [red, green, blue] = channels(rgb[i]);
        pixels.fill(((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0, line + first, line + last);
      }
      for (let k = 1; k < LINES_PER_ROW - 1; k++) pixels.copyWithin(line + k * width, line, line + width);
    }
    const image = ndarray(pixels.buffer, { dtype: "uint32", shape: [this.numRows * LINES_PER_ROW, width] });
    this.model("far").data = { image: [image], x: [from], y: [-0.5 - 0.5 / LINES_PER_ROW], dw: [to - from], dh: [this.numRows] };
  }

  /** Draw what each device holds, at most one step for each pixel. */
  drawHeld(from, to) {
    const [xs, ys] = [[], []];
    const half = this.colours.looks.half_row;
    const most = this.width;
    for (const { schedule, device, row } of this.heldRows) {
      const floor = row + half;
      const level = (held) => floor - (2 * half * held) / this.top;
      const first = Math.max(schedule.startedBy(device, from), schedule.held_first[device] - 1);
      const last = schedule.startedBy(device, to);
      const several = Math.max(Math.ceil((last - first) / most), 1);
      const [x, y] = [[from], [floor]];
      let now = schedule.heldAt(device, from);
      x.push(from);
      y.push(level(now));
      for (let place = first + 1; place <= last; place += several) {
        const start = schedule.start_ms[schedule.held_rows[place]];
        let held = schedule.held[place]; // the most of several
        for (let k = place; k < Math.min(place + several, last + 1); k++) held = Math.max(held, schedule.held[k]);
        if (held === now) continue;
        x.push(start, start);
        y.push(level(now), level(held));
        now = held;
      }
      const stop = Math.max(Math.min(to, schedule.time_ms), from);
      x.push(stop, stop);
      y.push(level(now), floor);
      xs.push(x);
      ys.push(y);
    }
    this.model("held-areas").data = { xs, ys };
  }

  drawCapacity() {
    const lines = { x0: [], y0: [], x1: [], y1: [] };
    const half = this.colours.looks.half_row;
    for (const { schedule, device, row } of this.heldRows.filter((each) => each.schedule.capacity)) {
      const y = row + half - (2 * half * schedule.capacity[device]) / this.top;
      lines.x0.push(0);
      lines.x1.push(this.end_ms);
      lines.y0.push(y);
      lines.y1.push(y);
    }
    this.model("capacity").data = lines;
  }

  /** Return the schedule, the device, its row and the time under a place of the window, or null. */
  at(event) {
    for (const name of ["blocks", "held"]) {
      const view = this.views[name];
      const box = view.el.getBoundingClientRect();
      const { left, top, width, height } = view.frame.bbox;
      const [x, y] = [event.clientX - box.left - left, event.clientY - box.top - top];
      if (x < 0 || y < 0 || x > width || y > height) continue;
      const ms = this.times.start + (x / width) * (this.times.end - this.times.start);
      const held = name === "held";
      const row = Math.floor((y / height) * (held ? this.numHeldRows : this.numRows));
      for (const schedule of held ? [] : this.schedules) {
        const of = row - schedule.firstRow;
        if (of >= -this.titleRows && of < schedule.num_rows) {
          return { name, schedule, device: schedule.row_device[of] ?? -1, of, ms };
        }
      }
      const found = held && this.heldRows.find((each) => each.row === row);
      return found ? { name, ...found, ms } : { name, schedule: this.schedules[0], device: -1, ms };
    }
    return null;
  }
}

/** Return a title in lines that are no wider than so many pixels, broken between words but not before a unit. */
function wrappedTitle(title, px) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = "bold 12px system-ui, sans-serif";
  const lines = [];
  for (const word of title.split(/ (?!(?:ms|J|MiB|GiB|units)\b)/)) {
    const longer = lines.length ? `${lines.at(-1)} ${word}` : word;
    if (lines.length && pen.measureText(longer).width > px) lines.push(word);
    else lines.splice(-1, 1, longer);
  }
  return lines;
}
