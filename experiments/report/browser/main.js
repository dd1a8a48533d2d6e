// Builds the panels of the page and joins their parts.

/** What is said of the button that writes SVG. */
const LARGE_SVG = "a rectangle for each block that is seen: 65 000 take some 15 s and 40 MB; zoom in for less, or take PNG";

const MOST_STRIPS = 10; // rows of memory, with titles, that are all shown at first

const LEGEND_ENTRY_PX = 215; // width of the longest entry

/** Return buttons of which one is chosen. */
function choices(title, options, chosen, onChoice) {
  const group = element("div", { class: "choices", role: "radiogroup", "aria-label": title }, element("span", {}, title));
  for (const [value, text] of options) {
    const button = element("button", { type: "button", role: "radio", "aria-checked": value === chosen, "data-value": value }, text);
    button.addEventListener("click", () => {
      for (const other of group.querySelectorAll("button")) other.setAttribute("aria-checked", other === button);
      onChoice(value);
    });
    group.append(button);
  }
  return group;
}

/** Put a figure into its place; return how to find its models, and their views, by name. */
async function embedded(item, place) {
  const views = await Bokeh.embed.embed_item(item, place);
  const [root] = views.roots;
  const { document: figures } = root.model;
  const model = (name) => figures.get_model_by_name(name);
  return { root, model, viewOf: (name) => (root.model.name === name ? root : root.child_views.find((view) => view.model.name === name)) };
}

/** Return the least and the greatest value that each meaning of colours has in any plan. */
function rangesOf({ schedules, plans }) {
  const ranges = { micro_batch: [0, Math.max(...schedules.map((each) => each.num_micro_batches)) - 1] };
  if (plans) {
    const least = (values) => values.reduce((a, b) => Math.min(a, b));
    const most = (values) => values.reduce((a, b) => Math.max(a, b));
    ranges.clock = [least(plans.clock_mhz), most(plans.clock_mhz)];
    ranges.power = [Math.min(plans.blocking_power_w, least(plans.power_w)), most(plans.power_w)];
  }
  return ranges;
}

async function showTimelines(panel, data) {
  const schedules = data.schedules.map((tree) => new Schedule(tree));
  const numRows = schedules.reduce((sum, schedule) => sum + schedule.num_rows + 1, 0);
  const colours = new Colours(data.looks, schedules, rangesOf(data));
  const controls = panel.appendChild(element("div", { class: "controls" }));
  const frontier = data.plans ? panel.appendChild(element("div", { class: "frontier" })) : null;
  const legend = panel.appendChild(element("div", { class: "legend wide" }));
  const place = panel.appendChild(element("div", { class: "figures-place" }));
  const text = panel.appendChild(element("div", { class: "details", "aria-live": "polite" }));
  const { root, model, viewOf } = await embedded(data.items.timeline, place);
  const views = { blocks: viewOf("blocks"), held: viewOf("held") };
  const timeline = new Timeline(model, views, schedules, colours, data.memory_unit);
  const showLegend = () => legend.replaceChildren(colours.legend(legend.clientWidth));
  const meanings = Object.keys(MEANINGS).filter((name) => name === "kind" || colours.ranges[name]);
  const recolour = (meaning) => {
    colours.meaning = meaning;
    timeline.recolour();
    timeline.draw();
    showLegend();
  };
  controls.append(choices("colour", meanings.map((name) => [name, MEANINGS[name].title]), "kind", recolour));
  if (numRows > MOST_STRIPS) {
    const show = (which) => { timeline.showHeld(which === "all"); timeline.draw(); };
    controls.append(choices("memory of", [["fullest", "fullest device"], ["all", "all devices"]], "fullest", show));
  }
  timeline.showHeld(numRows <= MOST_STRIPS);
  controls.append(buttons("view", [
    ["all", () => timeline.showAll()], ["+", () => timeline.zoom(2)], ["−", () => timeline.zoom(0.5)]]));
  controls.append(buttons("save", [
    ["SVG", async () => save(await timeline.asRectangles(() => svgPicture(root, colours.legend())), "timeline.svg"), LARGE_SVG],
    ["PNG", async () => save(await pngPicture(root, colours.legend()), "timeline.png")]]));
  const selection = new Selection(place, text, timeline);
  new Readout(place, timeline, data.memory_unit, data.plans?.blocking_power_w ?? null);
  showLegend();
  new ResizeObserver(() => {
    timeline.draw();
    if (selection.chosen) selection.show(); // its rows may have moved
    showLegend();
  }).observe(place);
  if (frontier) await showFrontier(frontier, data, schedules[0], timeline, selection);
}

function buttons(title, actions) {
  const made = actions.map(([text, onClick, title = ""]) => {
    const button = element("button", { type: "button", title }, text);
    button.addEventListener("click", onClick);
    return button;
  });
  return element("div", { class: "choices" }, element("span", {}, title), ...made);
}

async function showFrontier(place, data, schedule, timeline, selection) {
  const figure = place.appendChild(element("div"));
  const side = place.appendChild(element("div", { class: "plan" }));
  const { model } = await embedded(data.items.frontier, figure);
  const layOutLegend = () => {
    const legend = model("legend");
    legend.ncols = Math.max(Math.floor(figure.clientWidth / LEGEND_ENTRY_PX), 1);
    model("frontier").height = 320 + 16 * Math.ceil(legend.items.length / legend.ncols);
  };
  new ResizeObserver(layOutLegend).observe(figure);
  const choice = new PlanChoice(side, data.plans, schedule, model("here"), (title) => {
    timeline.titles[0] = title;
    timeline.recolour();
    selection.show();
  });
  choice.show(data.plans.chosen);
}

window.showReport = async (bytes) => {
  Bokeh.set_log_level("error");
  const data = unpacked(bytes);
  const panels = { timeline: document.getElementById("panel-timeline"), progress: document.getElementById("panel-progress") };
  if (panels.timeline) await showTimelines(panels.timeline, data);
  if (panels.progress) {
    const { model } = await embedded(data.items.progress, panels.progress.appendChild(element("div")));
    showProgress(panels.progress, model, data.progress, data.memory_unit);
  }
};
