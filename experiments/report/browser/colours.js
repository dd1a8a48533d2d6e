// The colour of each block, as 0xRRGGBB, and the legend that says what it means.

const parsed = (hex) => Number.parseInt(hex.slice(1), 16);
const css = (rgb) => `#${rgb.toString(16).padStart(6, "0")}`;
const channels = (rgb) => [rgb >> 16, (rgb >> 8) & 255, rgb & 255];

/** Return a colour nearer to white, as odd micro-batches have it beside even ones. */
function paler(rgb) {
  return channels(rgb).reduce((sum, value) => sum * 256 + Math.round(value + 0.42 * (255 - value)), 0);
}

/** Return black or white, whichever stands out. */
function readableOn(rgb) {
  const [red, green, blue] = channels(rgb);
  return 0.299 * red + 0.587 * green + 0.114 * blue > 128 ? "#000000" : "#ffffff";
}

/** What a colour can stand for: its title, its unit, and its value for a block. */
const MEANINGS = {
  kind: { title: "kind" },
  micro_batch: { title: "micro-batch", unit: "micro-batch", value: (schedule, i) => schedule.micro_batch[i] },
  clock: { title: "clock", unit: "MHz", value: (schedule, i) => schedule.clock_mhz[i] },
  power: { title: "power", unit: "W", value: (schedule, i) => schedule.power_w[i] },
};

class Colours {
  /** Take the looks of `drawings.drawings`, all schedules, and the range of each meaning. */
  constructor(looks, schedules, ranges) {
    Object.assign(this, { looks, schedules, ranges });
    this.meaning = "kind";
  }

  /** Return the colour of every block of a schedule. */
  of(schedule) {
    const found = new Uint32Array(schedule.size);
    if (this.meaning === "kind" || !this.applies(schedule)) {
      const even = schedule.blocks.map((block) => this.ofKind(block));
      const odd = even.map(paler);
      for (let i = 0; i < schedule.size; i++) {
        found[i] = (schedule.micro_batch[i] % 2 ? odd : even)[schedule.block[i]];
      }
      return found;
    }
    const palette = this.looks.palettes[this.meaning].map(parsed);
    const [low, high] = this.ranges[this.meaning];
    const { value } = MEANINGS[this.meaning];
    for (let i = 0; i < schedule.size; i++) {
      const share = high > low ? (value(schedule, i) - low) / (high - low) : 1;
      found[i] = palette[Math.round(Math.min(Math.max(share, 0), 1) * (palette.length - 1))];
    }
    return found;
  }

  applies(schedule) {
    return this.meaning === "micro_batch" || schedule.clock_mhz !== null;
  }

  ofKind(block) {
    const [, alone, shared] = this.looks.kinds[block.kind];
    return parsed(block.devices.length > 1 ? shared : alone);
  }

  /** Return the legend as [colour, label] of each kind, in the order of the kinds. */
  kinds() {
    const found = new Map();
    for (const block of this.schedules.flatMap((schedule) => schedule.blocks)) {
      const isShared = block.devices.length > 1;
      const label = this.looks.kinds[block.kind][0] + (isShared ? " on several devices" : "");
      found.set(label, css(this.ofKind(block)));
    }
    const order = Object.values(this.looks.kinds).map(([name]) => name);
    const place = (label) => order.findIndex((name) => label.startsWith(name)) + 10 * label.includes(" on several");
    return [...found].map(([label, colour]) => [colour, label]).sort((a, b) => place(a[1]) - place(b[1]));
  }

  /** Return the legend as SVG in lines of at most a width in pixels; the same stands on the page and in exports. */
  legend(most = Infinity) {
    const space = "http" + "://www.w3.org/2000/svg";
    const svg = document.createElementNS(space, "svg");
    const add = (tag, attributes, text = "") => {
      const made = svg.appendChild(document.createElementNS(space, tag));
      for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
      made.textContent = text;
      return made;
    };
    const label = (x, text, y = 0) => add("text", { x, y: y + 14, fill: "#57606A", "font-size": 12, "font-family": "system-ui, sans-serif" }, text);
    let [x, y, width] = [0, 0, 0];
    if (this.meaning === "kind") {
      for (const [fill, text] of [...this.kinds(), [null, "number: micro-batch"]]) {
        const wide = (fill ? 38 : 18) + 6.4 * text.length;
        if (x > 0 && x + wide > most) [x, y] = [0, y + 20];
        if (fill) add("rect", { x, y: y + 3, width: 14, height: 14, fill, rx: 2 });
        label(x + (fill ? 20 : 0), text, y);
        x += wide;
        width = Math.max(width, Math.ceil(x));
      }
    } else {
      const palette = this.looks.palettes[this.meaning];
      const [low, high] = this.ranges[this.meaning];
      const { unit } = MEANINGS[this.meaning];
      const [first, last] = unit === "micro-batch" ? [`${unit} ${low}`, `${high}`] : [`${number(low, 4)} ${unit}`, `${number(high, 4)} ${unit}`];
      label(0, first);
      x = 8 + 6.6 * first.length;
      for (let k = 0; k < 64; k++) add("rect", { x: x + 3 * k, y: 4, width: 4, height: 12, fill: palette[k * 4 + 2] });
      label(x + 200, last);
      width = Math.ceil(x + 210 + 6.6 * last.length);
    }
    svg.setAttribute("width", width);
    svg.setAttribute("height", y + 20);
    svg.setAttribute("viewBox", `0 0 ${width} ${y + 20}`);
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", "what the colours mean");
    return svg;
  }
}
