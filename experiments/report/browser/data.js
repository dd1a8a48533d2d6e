// Plain data with arrays, from the bytes that Python wrote; and numbers and elements as people read them.

const ARRAYS = {
  uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, float64: Float64Array,
};

/** Return the data of `page_data.packed`, with its arrays. */
function unpacked(bytes) {
  return JSON.parse(new TextDecoder().decode(bytes), (key, value) => {
    if (value === null || !Array.isArray(value.array)) return value;
    const [type, text] = value.array;
    return new ARRAYS[type](Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer);
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
