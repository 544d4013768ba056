"use strict";
// Draws the page's plots: a <script type="application/json"> beside each .plot holds its traces.
(function () {
  const CONFIG = { responsive: true, displaylogo: false, doubleClick: "reset+autosize",
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };
  const PHONE = 640;
  const NAME = 12; // longest name beside a phone's plot, characters
  const ROW = 24; // height of a row of the legend, px
  const PAPER = 680; // width of what a sheet of A4 or letter has room for, px
  const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

  function copy(value) { return JSON.parse(JSON.stringify(value)); }

  // Legend rows stand above the plot: the plot grows by them, so that its axes keep their height.
  function height(plot, box) {
    const shown = plot.data.filter((t) => t.showlegend !== false && t.visible !== false);
    const longest = shown.reduce((most, t) => Math.max(most, String(t.name || "").length), 0);
    const columns = Math.max(1, Math.floor((box.clientWidth - 80) / (64 + 7.2 * longest)));
    return (plot.height || 400) + ROW * Math.ceil(shown.length / columns);
  }

  function visible(plot, slice) {
    return plot.data.map((t) => (t.meta.slice === null || t.meta.slice === slice));
  }

  // The cells of a map have no room for names on a phone: letters stand for those of the legend.
  function abbreviate(plot) {
    const maps = plot.data.filter((t) => t.type === "heatmap");
    const keys = maps.length ? plot.data.filter((t) => t.type !== "heatmap" && t.name) : [];
    const short = {};
    keys.forEach((t) => {
      const n = Object.keys(short).length;
      if (t.name !== "tie" && !(t.name in short)) { short[t.name] = LETTERS[n] || String(n + 1); }
    });
    maps.forEach((t) => {
      t.textfont = Object.assign({}, t.textfont, { size: 11 });
      t.text = t.text.map((row) => row.map((cell) => {
        const [name, ...rest] = cell.split("<br>");
        return [short[name] || name, ...rest].join("<br>");
      }));
    });
    keys.forEach((t) => { if (t.name in short) { t.name = short[t.name] + ": " + t.name; } });
  }

  function draw(figure) {
    const box = figure.querySelector(".plot");
    const plot = JSON.parse(figure.querySelector("script").textContent);
    const layout = copy(plot.layout);
    visible(plot, 0).forEach((v, i) => { plot.data[i].visible = v; });
    if (box.clientWidth < PHONE) { abbreviate(plot); }
    layout.height = height(plot, box);
    if (box.clientWidth < PHONE) {
      layout.margin = Object.assign({}, layout.margin, { l: 56, r: 8 });
      layout.dragmode = false; // a finger scrolls the page; the plot's own buttons zoom
      layout.font.size = 11;
      delete layout.xaxis.dtick; // fewer ticks have room
      const names = layout.yaxis.type === "category" ? plot.data.flatMap((t) => t.y) : [];
      if (names.some((n) => String(n).length > NAME)) {
        layout.yaxis.showticklabels = false; // the legend names the rows, in their order
      }
    }
    Plotly.newPlot(box, plot.data, layout, CONFIG).then(() => {
      tools(figure, box, plot);
      box.dataset.drawn = "true";
    });
  }

  function tools(figure, box, plot) {
    const bar = figure.querySelector(".tools");
    plot.log.split("").forEach((letter) => {
      const button = document.createElement("button");
      const axis = letter + "axis";
      button.type = "button";
      button.dataset.axis = letter;
      button.textContent = "log " + letter;
      const press = () => button.setAttribute("aria-pressed",
        String(box.layout[axis].type === "log"));
      button.addEventListener("click", () => {
        const log = box.layout[axis].type !== "log";
        const change = {};
        change[axis + ".type"] = log ? "log" : "linear";
        change[axis + ".autorange"] = true;
        change[axis + ".dtick"] = log ? plot.layout[axis].dtick || null : null;
        Plotly.relayout(box, change).then(press);
      });
      press();
      bar.append(button);
    });
    if (plot.slices.length > 1) {
      const label = document.createElement("label");
      const select = document.createElement("select");
      plot.slices.forEach((name, i) => select.add(new Option(name, String(i))));
      select.addEventListener("change", () => {
        const seen = visible(plot, Number(select.value));
        seen.forEach((v, i) => { plot.data[i].visible = v; });
        Plotly.update(box, { visible: seen }, { height: height(plot, box) });
      });
      label.append("Show ", select);
      bar.append(label);
    }
  }

  document.querySelectorAll("figure.interactive").forEach(draw);

  const opened = []; // by printing, to be folded again
  window.addEventListener("beforeprint", () => {
    document.querySelectorAll("details:not([open])").forEach((d) => {
      d.open = true;
      opened.push(d);
    });
    document.querySelectorAll(".plot[data-drawn]").forEach((box) => {
      if (box.clientWidth > PAPER) { Plotly.relayout(box, { width: PAPER }); }
    });
  });
  window.addEventListener("afterprint", () => {
    opened.splice(0).forEach((d) => { d.open = false; });
    document.querySelectorAll(".plot[data-drawn]").forEach((box) => {
      Plotly.relayout(box, { autosize: true, width: null });
    });
  });
})();
