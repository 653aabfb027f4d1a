"""The style sheet of the HTML report: one column, both colour schemes, readable from 320 px on."""

from __future__ import annotations

# One colour a group of memory items; the items of a group are shades of it.
GROUPS = {
    "static": ("weights, gradients, optimizer", 215),
    "persistent": ("persistent buffers", 180),
    "activation": ("activations", 28),
    "transient": ("transients", 48),
    "allocator": ("allocator", 280),
    "device": ("runtime and communicators", 330),
}
# Event -> (words, (hue, saturation)) of the timeline.
EVENTS = {"F": ("forward", (212, 62)), "B": ("backward", (22, 78)), "W": ("weight gradient", (140, 45))}
# Class of operation -> (words, hue) of the throughput breakdown.
CLASSES = {
    "gemm": ("GEMM", 215), "grouped_gemm": ("grouped GEMM", 195), "attention": ("attention", 240),
    "memory_bound": ("memory-bound kernels", 170), "host": ("host launches", 60), "recompute": ("recomputation", 28),
    "contention": ("contention", 12), "straggler": ("stragglers", 0), "tp": ("tensor parallel", 300),
    "cp": ("context parallel", 285), "ep": ("expert parallel", 320), "fsdp": ("sharded weights", 265),
    "pp": ("sends between stages", 255), "bubble": ("pipeline bubble", -1), "dp": ("gradients and parameters", 340),
    "optimizer": ("optimizer", 130),
}  # fmt: skip

CSS = """
:root{color-scheme:light dark;--bg:#fbfbfa;--card:#fff;--ink:#1c1e21;--dim:#667;--line:#dfe1e5;--code:#f3f4f6;
--error:#b3261e;--warning:#8a5a00;--info:#0b5cad;--ok:#1b6e3c;--idle:#e9eaed;--over:#b3261e}
@media (prefers-color-scheme:dark){:root{--bg:#15171a;--card:#1d2024;--ink:#e6e7e9;--dim:#9aa0a8;--line:#33373d;
--code:#24282d;--error:#ff8a80;--warning:#f0b458;--info:#7db8f5;--ok:#76c893;--idle:#2a2e33;--over:#ff8a80}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1080px;margin:0 auto;padding:16px}
h1{font-size:1.45rem;margin:.2em 0}h2{font-size:1.12rem;margin:0 0 .3em;overflow-wrap:anywhere}
h3{font-size:.95rem;margin:1.3em 0 .5em}
p{margin:.4em 0;overflow-wrap:anywhere}.dim{color:var(--dim)}.small{font-size:.85rem}
section{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:16px;margin:16px 0}
.chips span{display:inline-block;border:1px solid currentColor;border-radius:999px;padding:0 .7em;margin:0 .4em .3em 0}
.error{color:var(--error)}.warning{color:var(--warning)}.info{color:var(--info)}.ok{color:var(--ok)}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{text-align:left;padding:4px 10px 4px 0;border-bottom:1px solid var(--line);vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td.path{overflow-wrap:anywhere;min-width:9em}
a{color:var(--info)}
pre{background:var(--code);border-radius:6px;padding:10px;overflow-x:auto;font:13px/1.45 ui-monospace,Menlo,Consolas,monospace;margin:.5em 0}
.bar{position:relative;display:flex;height:22px;background:var(--idle);border-radius:4px;overflow:hidden}
.bar i{display:block;height:100%;min-width:0}
.mem{position:relative;margin:0 0 12px}
.mem .head{display:flex;justify-content:space-between;gap:8px;flex-wrap:wrap;font-size:.85rem}
.mem .box{position:relative;padding:0}
.mark{position:absolute;top:-3px;bottom:-3px;width:0;border-left:2px solid var(--over)}
.low{position:absolute;top:0;bottom:0;width:0;border-left:2px dotted var(--ink)}
.legend{display:flex;flex-wrap:wrap;gap:2px 14px;font-size:.82rem;margin:.4em 0}
.legend b{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin-right:.4em;vertical-align:-.05em}
.gantt{display:grid;grid-template-columns:auto 1fr auto;gap:3px 8px;align-items:center;font-size:.8rem}
.gantt svg{width:100%;height:18px;background:var(--idle);border-radius:3px;display:block}
.gantt .n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.finding{border-left:4px solid currentColor;padding-left:12px;margin:14px 0}
.finding>*{color:var(--ink)}.finding .title{font-weight:600;overflow-wrap:anywhere}
.finding .error{color:var(--error)}.finding .warning{color:var(--warning)}.finding .info{color:var(--info)}
.add{color:var(--ok)}.del{color:var(--error)}.caret{font-weight:700}
details summary{cursor:pointer}
.front{width:100%;height:auto;max-width:640px;display:block}
@media (max-width:600px){main{padding:8px}.front text{font-size:20px}section{padding:12px;border-radius:6px}.wide{display:none}}
@media print{body{background:#fff}section{break-inside:avoid}}
"""
