// The slider along the frontier: a plan's figures, its point on the curve, and the blocks at its clocks.

class PlanChoice {
  /** Take the place of the controls, the plans, the schedule they are of, and what is called after a change. */
  constructor(place, plans, schedule, point, onChange) {
    Object.assign(this, { plans, schedule, point, onChange });
    this.highest = plans.time_ms.length - 1; // the plan behind those of the frontier
    this.slider = element("input", {
      type: "range", min: 0, max: this.highest - 1, value: plans.chosen, "aria-label": "plan of the frontier",
    });
    this.figures = element("dl", { class: "figures" });
    const button = (text, plan) => {
      const made = element("button", { type: "button" }, text);
      made.addEventListener("click", () => this.show(plan));
      return made;
    };
    const buttons = element("div", { class: "choices" },
      button("chosen plan", plans.chosen), button("all clocks at maximum", this.highest));
    this.slider.addEventListener("input", () => this.show(Number(this.slider.value)));
    place.append(
      element("label", {}, element("span", {}, "fastest"), this.slider, element("span", {}, "slowest")),
      buttons, this.figures);
  }

  /** Run the schedule at the clocks of a plan and say what that takes. */
  show(plan) {
    const { plans } = this;
    this.plan = plan;
    if (plan < this.highest) this.slider.value = plan;
    this.schedule.runAt(plans, plan);
    this.point.data = { x: [plans.time_ms[plan]], y: [plans.energy_mj[plan] / 1e3] };
    this.figures.replaceChildren(...this.facts(plan).flatMap(([name, value]) => (
      [element("div", {}, element("dt", {}, name), element("dd", {}, value))])));
    this.onChange(this.title(plan));
  }

  facts(plan) {
    const { plans } = this;
    const left = this.highest < plans.num_plans ? `, of ${plans.num_plans} some are here` : "";
    const place = `${plan + 1} of ${this.highest}${left}`;
    const note = plans.is_alone[plan] ? "" : ", pays only next to a straggler";
    return [
      ["plan", plan === this.highest ? "all clocks at maximum" : place + note],
      ["time", `${number(plans.time_ms[plan])} ms`],
      ["energy", `${number(plans.energy_mj[plan] / 1e3)} J`],
      ["saved", `${percent(plans.saving[plan])} against all clocks at maximum, both until ${number(plans.until_ms[plan])} ms`],
      ["training", plans.training[plan]],
    ].filter(([, value]) => value);
  }

  /** Return what stands above the timeline. */
  title(plan) {
    const { plans } = this;
    const name = plan === this.highest ? "all clocks at maximum" : "planned clocks";
    return `${this.schedule.title}: ${name}, ${number(plans.time_ms[plan])} ms, ${number(plans.energy_mj[plan] / 1e3)} J`;
  }
}
