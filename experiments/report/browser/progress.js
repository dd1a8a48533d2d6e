// What a search had found and proved at which time.

/** Fill the figure of the progress, one value at a time, chosen by a control. */
function showProgress(panel, model, phases, unit) {
  const show = (phase) => {
    const { elapsed_s: x, best, bound, end_s: end } = phase;
    const known = best.findIndex((value) => value !== null);
    const found = known < 0 ? { x: [], y: [] } : { x: [...x.slice(known), end], y: [...best.slice(known), best.at(-1)] };
    model("best").data = found;
    model("bound").data = { x: [...x, end], y: [...bound, bound.at(-1)] };
    const title = phase.phase === "period" ? "period per micro-batch" : phase.phase;
    model("progress").left[0].axis_label = `${title} (${phase.is_memory ? unit : "ms"})`;
  };
  const last = phases.length - 1;
  const controls = choices("objective", phases.map((phase, place) => [place, phase.phase]), last, (place) => show(phases[place]));
  if (phases.length > 1) panel.prepend(element("div", { class: "controls" }, controls));
  show(phases[last]);
}
