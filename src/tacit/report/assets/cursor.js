"use strict";
// One cursor for all curves: pointing at a step, or walking with the arrow keys.

let cursorAt = null,
  cursorFrame = 0;

function axisOf(card) {
  return card.plot._fullLayout?.xaxis;
}

function stepsOf(card) {
  return [...new Set(card.lines.flatMap((l) => l.x))].sort((a, b) => a - b);
}

function point(card, event) {
  const axis = axisOf(card);
  if (!axis) return;
  const x = axis.p2c(event.clientX - card.plot.getBoundingClientRect().left - axis._offset);
  const near = stepsOf(card).reduce(
    (best, one) => (Math.abs(one - x) < Math.abs(best - x) ? one : best),
    Infinity,
  );
  moveCursor(Number.isFinite(near) ? near : null);
}

function step(card, event) {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (event.key === "Escape") return moveCursor(null);
  if (!by) return;
  event.preventDefault();
  const steps = stepsOf(card),
    here = cursorAt == null ? steps.length : steps.findIndex((one) => one >= cursorAt);
  moveCursor(steps[Math.max(0, Math.min(steps.length - 1, here + by))]);
}

function moveCursor(x) {
  cursorAt = x;
  cancelAnimationFrame(cursorFrame);
  cursorFrame = requestAnimationFrame(() => {
    for (const card of cards.values()) if (!card.root.hidden) showCursor(card, x);
  });
}

function showCursor(card, x) {
  const axis = axisOf(card);
  card.cursor.hidden = x == null || !axis;
  if (axis && x != null) {
    const [low, high] = axis.range;
    card.cursor.hidden = x < low || x > high;
    card.cursor.style.left = `${axis._offset + axis.c2p(x)}px`;
    card.cursor.firstChild.textContent = view.hours ? `${x.toFixed(2)} h` : `step ${x}`;
  }
  for (const line of card.lines)
    line.output.textContent = short(x == null ? line.y.at(-1) : valueAt(line, x));
}

// The value at a place, or the last one before it.
function valueAt(line, x) {
  const place = line.x.findLastIndex((one) => one <= x);
  return place < 0 ? null : line.y[place];
}
