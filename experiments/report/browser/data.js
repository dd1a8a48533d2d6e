// Plain data with arrays, from the bytes that Python wrote; and numbers and elements as people read them.

const ARRAYS = {
  uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, float64: Float64Array,
};

/** Return the data of `page_data.packed`; its arrays are views of the bytes. */
function unpacked(bytes) {
  const length = Number(new DataView(bytes).getBigUint64(0, true));
  const header = new TextDecoder().decode(new Uint8Array(bytes, 8, length));
  return JSON.parse(header, (key, value) => {
    if (value === null || !Array.isArray(value.array)) return value;
    const [type, shape, offset] = value.array;
    return new ARRAYS[type](bytes, 8 + length + offset, shape.reduce((a, b) => a * b, 1));
  });
}

/** Return a number with six figures and commas. */
function number(value, figures = 6) {
  return value.toLocaleString("en-US", { maximumSignificantDigits: figures });
}

/** Return a share in percent. */
function percent(share) {
  return `${(100 * share).toFixed(2)} %`;
}

/** Return an element with attributes and children; texts are shown as they are, never as markup. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Return the first place from `low` on, before `high`, at which a test that stays true becomes true. */
function firstPlace(low, high, isTrue) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (isTrue(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}
