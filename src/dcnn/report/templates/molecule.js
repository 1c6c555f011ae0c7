"use strict";
// A molecule with its forces on a plain canvas: spheres, bonds and arrows sorted by depth, turned by dragging.
function showMolecule(box) {
  const canvas = box.querySelector("canvas"), select = box.querySelector("select");
  const slider = box.querySelector("input[type=range]"), longest = box.querySelector(".longest");
  const { frames, elements } = JSON.parse(box.querySelector("script").textContent);
  const context = canvas.getContext("2d");
  let frame = frames[0];
  let turn = multiply(rotation(0, -0.35), rotation(1, 0.25)); // a little from above and from the side

  function draw() {
    const width = canvas.clientWidth, height = canvas.clientHeight, ratio = window.devicePixelRatio || 1;
    if (!width) return; // inside a closed <details>
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const style = getComputedStyle(canvas);
    const colour = (name) => style.getPropertyValue(name).trim();

    const sizes = [...frame.label, ...frame.network].map(length);
    const largest = Math.max(...sizes, 1e-12);
    const reach = Math.max(...frame.positions.map(length), ...frame.cell.flat().map(length), 1) + 0.8;
    const arrow = (1.4 / largest) * 3 ** Number(slider.value); // Å per kcal/mol/Å
    longest.textContent = largest.toPrecision(3);
    const distance = 5 * reach, zoom = (0.5 * Math.min(width, 1.15 * height)) / reach;
    const project = (point) => {
      const [x, y, z] = apply(turn, point), scale = (zoom * distance) / (distance - z);
      return { x: width / 2 + x * scale, y: height / 2 - y * scale, z, scale };
    };

    const parts = [];
    const atoms = frame.positions.map(project);
    frame.cell.forEach(([a, b]) => {
      const p = project(a), q = project(b);
      parts.push([Math.min(p.z, q.z), () => stroke([p, q], colour("--c7"), 1)]);
    });
    frame.bonds.forEach(([i, j]) => {
      const half = frame.positions[i].map((value, axis) => (value + frame.positions[j][axis]) / 2);
      for (const [end, z] of [[atoms[i], atoms[i].z], [atoms[j], atoms[j].z]]) {
        const middle = project(half);
        parts.push([(z + middle.z) / 2 - 0.05, () => stroke([end, middle], "#8d949b", 0.16 * middle.scale)]);
      }
    });
    frame.positions.forEach((position, i) => {
      const { colour: rgb, radius } = elements[frame.symbols[i]];
      parts.push([atoms[i].z, () => ball(atoms[i], (0.16 + 0.28 * radius) * atoms[i].scale, rgb)]);
      for (const [kind, name] of [["label", "--c0"], ["network", "--c1"]]) {
        const tip = project(position.map((value, axis) => value + arrow * frame[kind][i][axis]));
        if (length(frame[kind][i]) > 0.01 * largest) {
          parts.push([Math.max(atoms[i].z, tip.z) + 0.3, () => pointer(atoms[i], tip, colour(name))]);
        }
      }
    });
    parts.sort(([a], [b]) => a - b).forEach(([, paint]) => paint());
  }

  function stroke([p, q], colour, width) {
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.lineCap = "round";
    context.beginPath();
    context.moveTo(p.x, p.y);
    context.lineTo(q.x, q.y);
    context.stroke();
  }

  function ball(at, radius, [r, g, b]) {
    const shade = context.createRadialGradient(at.x - radius / 3, at.y - radius / 3, radius / 8, at.x, at.y, radius);
    const mix = (share, towards) => [r, g, b].map((part) => Math.round(part + share * (towards - part)));
    shade.addColorStop(0, `rgb(${mix(0.65, 255)})`);
    shade.addColorStop(0.55, `rgb(${mix(0.06, 0)})`);
    shade.addColorStop(1, `rgb(${mix(0.45, 0)})`);
    context.fillStyle = shade;
    context.beginPath();
    context.arc(at.x, at.y, radius, 0, 2 * Math.PI);
    context.fill();
  }

  function pointer(from, to, colour) {
    stroke([from, to], colour, 2.2);
    const angle = Math.atan2(to.y - from.y, to.x - from.x);
    const size = Math.min(9, 0.6 * Math.hypot(to.x - from.x, to.y - from.y));
    context.fillStyle = colour;
    context.beginPath();
    context.moveTo(to.x + size * 0.5 * Math.cos(angle), to.y + size * 0.5 * Math.sin(angle));
    for (const side of [2.6, -2.6]) {
      context.lineTo(to.x + size * Math.cos(angle + side), to.y + size * Math.sin(angle + side));
    }
    context.fill();
  }

  const drag = (dx, dy) => {
    turn = multiply(rotation(1, dx * 0.01), multiply(rotation(0, dy * 0.01), turn));
    draw();
  };
  let last = null;
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    last = [event.clientX, event.clientY];
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!canvas.hasPointerCapture(event.pointerId)) return;
    drag(event.clientX - last[0], event.clientY - last[1]);
    last = [event.clientX, event.clientY];
  });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [-15, 0], ArrowRight: [15, 0], ArrowUp: [0, -15], ArrowDown: [0, 15] }[event.key];
    if (!step) return;
    event.preventDefault();
    drag(...step);
  });
  select.addEventListener("change", () => {
    frame = frames[Number(select.value)];
    draw();
  });
  slider.addEventListener("input", draw);
  new ResizeObserver(draw).observe(canvas); // also when a closed part of the page opens
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}

function rotation(axis, angle) {
  const c = Math.cos(angle), s = Math.sin(angle);
  return axis === 0 ? [[1, 0, 0], [0, c, -s], [0, s, c]] : [[c, 0, s], [0, 1, 0], [-s, 0, c]];
}
function multiply(a, b) {
  return a.map((row) => [0, 1, 2].map((j) => row[0] * b[0][j] + row[1] * b[1][j] + row[2] * b[2][j]));
}
function apply(matrix, [x, y, z]) {
  return matrix.map((row) => row[0] * x + row[1] * y + row[2] * z);
}
function length(vector) {
  return Math.hypot(...vector);
}

document.querySelectorAll(".molecule").forEach(showMolecule);
