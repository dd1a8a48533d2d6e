// Inflates the page's scripts and data, which are in the page itself, and starts them.
(async () => {
  "use strict";
  const inflated = async (id) => {
    const text = atob(document.getElementById(id).textContent.trim());
    const bytes = Uint8Array.from(text, (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).arrayBuffer();
  };
  try {
    const [code, data] = await Promise.all([inflated("page-code"), inflated("page-data")]);
    const script = document.createElement("script");
    script.textContent = new TextDecoder().decode(code);
    document.head.append(script);
    await window.showReport(data);
    document.body.dataset.shown = "yes";
  } catch (error) {
    document.body.dataset.shown = "no";
    for (const panel of document.querySelectorAll(".panel")) {
      panel.append("This browser cannot show this part; the same pictures are in the files of the folder.");
    }
    throw error;
  }
})();
