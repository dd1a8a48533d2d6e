// A schedule: where its blocks are, what they wait for, and what its devices hold, at any clocks.

class Schedule {
  /** Take the data of `page_data.schedule_tree`; `firstRow` is the row of the first device. */
  constructor(tree) {
    Object.assign(this, tree);
    this.firstRow = 0;
    this.size = this.block.length;
    this.clock_mhz = this.power_w = null;
  }

  get time_ms() {
    return this.end_ms.reduce((a, b) => Math.max(a, b), 0);
  }

  blockOf(i) {
    return this.blocks[this.block[i]];
  }

  /** Return what people call a block of a micro-batch, with its mode where that is not the first. */
  nameOf(i) {
    const mode = this.modeOf(i);
    return `${this.blockOf(i).name} of micro-batch ${this.micro_batch[i]}${mode && `, ${mode}`}`;
  }

  /** Return the mode of a block where it is not the first; empty otherwise. */
  modeOf(i) {
    return this.modes[this.mode[i]];
  }

  get num_rows() {
    return this.row_names.length;
  }

  /** Return where one of the schedule's rows, a stream of a device, is drawn. */
  rowOf(row) {
    return this.firstRow + row;
  }

  /** Return the places in `rows` of a row's blocks that are seen between two times. */
  seen(row, from, to) {
    const [first, last] = [this.row_first[row], this.row_first[row + 1]];
    const low = firstPlace(first, last, (place) => this.end_ms[this.rows[place]] > from);
    return [low, firstPlace(low, last, (place) => this.start_ms[this.rows[place]] >= to)];
  }

  /** Return the last place in `held_rows` of a device at which a block has started; one before its first for none. */
  startedBy(device, ms) {
    const [first, last] = [this.held_first[device], this.held_first[device + 1]];
    return firstPlace(first, last, (place) => this.start_ms[this.held_rows[place]] > ms) - 1;
  }

  /** Return the block that runs in a row at a time, or -1. */
  runningAt(row, ms) {
    const [first, last] = [this.row_first[row], this.row_first[row + 1]];
    const place = firstPlace(first, last, (each) => this.start_ms[this.rows[each]] > ms) - 1;
    if (place < first) return -1;
    const i = this.rows[place];
    return ms < this.end_ms[i] ? i : -1;
  }

  /** Return the device that comes nearest to its capacity, or holds most where there is none. */
  get fullest() {
    const shares = this.peak.map((held, device) => held / (this.capacity?.[device] || 1));
    return shares.indexOf(Math.max(...shares));
  }

  /** Return what a device holds at a time. */
  heldAt(device, ms) {
    const place = this.startedBy(device, ms);
    return place < this.held_first[device] ? this.static[device] : this.held[place];
  }

  /** Return the blocks that a block waits for: its inputs, and those before it on its devices. */
  waitsFor(i) {
    return Array.from(this.before.subarray(this.before_first[i], this.before_first[i + 1]));
  }

  /** Return the blocks that wait for a block. */
  waitedForBy(i) {
    const found = [];
    for (let j = i + 1; j < this.size; j++) {
      for (let k = this.before_first[j]; k < this.before_first[j + 1]; k++) if (this.before[k] === i) found.push(j);
    }
    return found;
  }

  /** Return whether the earlier of two is an input of the later, and not only before it on a device. */
  isInput(earlier, later) {
    return this.blockOf(later).after.includes(this.block[earlier]);
  }

  /** Run at the clocks of a plan: every block takes its time there, and starts as soon as it can. */
  runAt(plans, plan) {
    const { choice, run, point_first, time_of_point_ms, clock_mhz, power_w } = plans;
    const [start, end] = [new Float64Array(this.size), new Float64Array(this.size)];
    this.clock_mhz = new Float64Array(this.size);
    this.power_w = new Float64Array(this.size);
    for (let i = 0; i < this.size; i++) {
      const point = point_first[run[i]] + choice[plan * this.size + i];
      for (let k = this.before_first[i]; k < this.before_first[i + 1]; k++) {
        start[i] = Math.max(start[i], end[this.before[k]] + this.delay_ms[k]);
      }
      end[i] = start[i] + time_of_point_ms[point];
      this.clock_mhz[i] = clock_mhz[point];
      this.power_w[i] = power_w[point];
    }
    [this.start_ms, this.end_ms] = [start, end];
  }
}
