// The block that was clicked, what it waits for and what waits for it.

const BEFORE = "#B03A00";
const AFTER = "#006D4F";
const CHOSEN = "#0062A3";
const FADED = 0.3;

class Selection {
  /** Take where the text goes, the timeline, and the figures' glyphs that are faded. */
  constructor(place, text, timeline) {
    Object.assign(this, { text, timeline });
    let pressed = null;
    place.addEventListener("pointerdown", (event) => { pressed = [event.clientX, event.clientY]; }, true);
    place.addEventListener("click", (event) => {
      const isDrag = pressed && Math.hypot(event.clientX - pressed[0], event.clientY - pressed[1]) > 4;
      if (!isDrag) this.choose(timeline.at(event));
    }, true);
    document.addEventListener("keydown", (event) => { if (event.key === "Escape") this.choose(null); });
    this.choose(null);
  }

  /** Mark the block at a place, or none. */
  choose(found) {
    const isBlock = found !== null && found.name === "blocks" && found.device >= 0;
    const i = isBlock ? found.schedule.runningAt(found.of, found.ms) : -1;
    this.chosen = i < 0 ? null : { schedule: found.schedule, i };
    this.show();
  }

  /** Draw the marks again, as after a change of the clocks, and say what they are. */
  show() {
    const { timeline } = this;
    const marks = { left: [], right: [], top: [], bottom: [], color: [] };
    const lines = { x0: [], y0: [], x1: [], y1: [], color: [] };
    timeline.marked = new Map();
    if (this.chosen === null) {
      this.text.textContent = "Click a block to see what it waits for. Drag to move, turn the wheel to zoom.";
    } else {
      const { schedule, i } = this.chosen;
      const before = schedule.waitsFor(i);
      const after = schedule.waitedForBy(i);
      const colourOf = new Map([...before.map((j) => [j, BEFORE]), ...after.map((j) => [j, AFTER]), [i, CHOSEN]]);
      timeline.marked.set(schedule, colourOf);
      for (const [j, colour] of colourOf) this.mark(schedule, j, colour, marks);
      for (const j of before) this.connect(schedule, j, i, BEFORE, lines);
      for (const j of after) this.connect(schedule, i, j, AFTER, lines);
      this.describe(schedule, i, before, after);
    }
    timeline.fade(this.chosen === null ? 1 : FADED);
    timeline.model("marks").data = marks;
    timeline.model("waits").data = lines;
    timeline.draw();
  }

  mark(schedule, i, colour, marks) {
    const half = this.timeline.colours.looks.half_row;
    for (const row of schedule.blockOf(i).rows) {
      marks.left.push(schedule.start_ms[i]);
      marks.right.push(schedule.end_ms[i]);
      marks.top.push(schedule.rowOf(row) - half);
      marks.bottom.push(schedule.rowOf(row) + half);
      marks.color.push(colour);
    }
  }

  /** Draw a line from the end of a block to the start of one that waits for it. */
  connect(schedule, earlier, later, colour, lines) {
    const middle = ({ rows }) => schedule.rowOf(rows[rows.length >> 1]);
    lines.x0.push(schedule.end_ms[earlier]);
    lines.y0.push(middle(schedule.blockOf(earlier)));
    lines.x1.push(schedule.start_ms[later]);
    lines.y1.push(middle(schedule.blockOf(later)));
    lines.color.push(colour);
  }

  describe(schedule, i, before, after) {
    const line = (colour, title, others) => element("div", {},
      element("span", { class: "mark", style: `background: ${colour}` }), element("b", {}, title), " ",
      others.join("; ") || "nothing");
    const why = (earlier, later) => (schedule.isInput(earlier, later) ? "" : ", before it on the device");
    this.text.replaceChildren(
      line(CHOSEN, schedule.nameOf(i), [`${number(schedule.start_ms[i], 8)} to ${number(schedule.end_ms[i], 8)} ms`]),
      line(BEFORE, "waits for", before.map((j) => `${schedule.nameOf(j)} (ends at ${number(schedule.end_ms[j], 8)} ms${why(j, i)})`)),
      line(AFTER, "is waited for by", after.map((j) => `${schedule.nameOf(j)} (starts at ${number(schedule.start_ms[j], 8)} ms${schedule.isInput(i, j) ? "" : ", after it on the device"})`)),
    );
  }
}
