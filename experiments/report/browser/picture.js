// What is seen, as a file: both figures above each other, with the legend below.

const MARGIN = 12;

/** Return SVG of the figures with the legend. */
async function svgPicture(view, legend) {
  const figures = new DOMParser().parseFromString(await (await view.export("svg", false).to_blob()).text(), "image/svg+xml").documentElement;
  const { width, height } = view.bbox;
  const picture = legend.cloneNode(false);
  for (const [name, value] of Object.entries({ width, height: height + 20 + MARGIN, viewBox: `0 0 ${width} ${height + 20 + MARGIN}` })) {
    picture.setAttribute(name, value);
  }
  const white = document.createElementNS(picture.namespaceURI, "rect");
  for (const [name, value] of Object.entries({ width: "100%", height: "100%", fill: "#ffffff" })) white.setAttribute(name, value);
  const below = legend.cloneNode(true);
  below.setAttribute("x", MARGIN);
  below.setAttribute("y", height);
  picture.append(white, figures, below);
  return new Blob([new XMLSerializer().serializeToString(picture)], { type: "image/svg+xml" });
}

/** Return a PNG of the same, with the screen's dots. */
async function pngPicture(view, legend) {
  const { canvas } = view.export("png", true);
  const scale = canvas.width / view.bbox.width;
  const image = new Image();
  image.src = `data:image/svg+xml;utf8,${encodeURIComponent(new XMLSerializer().serializeToString(legend))}`;
  await image.decode();
  const whole = element("canvas", { width: canvas.width, height: canvas.height + (20 + MARGIN) * scale });
  const drawing = whole.getContext("2d");
  drawing.fillStyle = "#ffffff";
  drawing.fillRect(0, 0, whole.width, whole.height);
  drawing.drawImage(canvas, 0, 0);
  drawing.drawImage(image, MARGIN * scale, canvas.height, image.width * scale, image.height * scale);
  return new Promise((resolve) => { whole.toBlob(resolve, "image/png"); });
}

/** Offer a file to the reader. */
function save(blob, name) {
  const link = element("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}
