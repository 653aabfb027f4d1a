"""The options of the commands that check, as data: click builds its commands from them, and a plain `check` is parsed
from them without importing click (a third of a cold start)."""

from __future__ import annotations

from primus_lint.tuples import NamedTuple

# name -> (module, one line of help); the module has a click command called `command`.
COMMANDS = {
    "check": ("check", "Check files and directories (the default command)."),
    "fix": ("fix", "Repair and tune in place, print the diff."),
    "explain": ("explain", "Explain a rule, a key, or one value of a file (FILE:key), or the memory of a file."),
    "tune": ("tune", "Search the best recipe, explain it and prove it."),
    "project": ("project", "Memory by pipeline rank and projected speed of a file."),
    "measure": ("measure", "Measure a recipe's layers and collectives on this device, or import measurements."),
    "calibrate": ("calibrate", "Fit the projection of a device to the log of a training run."),
    "batch": ("batch", "Evaluate recipes given as JSON lines."),
    "rules": ("rules", "List the rules."),
    "hardware": ("hardware", "Show the hardware database."),
    "schema": ("schema", "Print a published JSON Schema, or make a preset snapshot from a Primus checkout."),
    "config": ("config", "Show the settings that hold for a file."),
    "server": ("server", "Language server for editors (extra `lsp`)."),
    "test-rules": ("test_rules", "Run the examples of rule files as tests."),
}

FORMATS = (
    "text", "concise", "json", "sarif", "github", "gitlab", "junit", "markdown", "html", "trace",
)  # fmt: skip
BASELINE = ".primus-lint-baseline.json"
OBJECTIVES = ("tokens", "memory-headroom", "cost")
LEVELS = ("error", "warning", "info", "never")
PROFILES = ("legal", "recommended", "all")


class Option(NamedTuple):
    """`kind`: "flag", "text", "count" (a positive whole number), "number", "choice", "file", "folder", "output", "optional"
    (a flag that may have a value: `--flag` or `--flag=VALUE`, never `--flag VALUE`)."""

    flag: str
    dest: str
    kind: str
    help: str
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    multiple: bool = False
    default: float | str | None = None
    short: str | None = None


TARGET = (
    Option("--gpu", "gpu", "text", "GPU kind, e.g. mi300x, h100 (see `primus-lint hardware`).", "NAME"),
    Option("--nodes", "nodes", "count", "Number of nodes.", "N"),
    Option("--world-size", "world_size", "count", "Number of GPUs.", "N"),
    Option("--gpus-per-node", "gpus_per_node", "count", "GPUs of a node.", "N"),
    Option("--env", "env", "text", "Environment variable of the run.", "NAME=VALUE", multiple=True),
    Option("--set", "set_values", "text", "Override a key (YAML 1.1 scalar).", "key=value", multiple=True),
    Option("--model", "model", "text", "Model facts for a file that names none (shipped model table).", "NAME"),
    Option("--framework-version", "framework_version", "text", "Megatron commit, core-0.16.1, or Primus release.", "V"),
    Option("--primus-root", "primus_root", "folder", "A Primus checkout.", "DIR"),
)
FIXING = (
    Option("--diff", "diff", "flag", "Print what --fix would change; write nothing."),
    Option("--unsafe-fixes", "unsafe_fixes", "flag", "Also apply fixes that can change numerics or checkpoints."),
    Option("--no-tune", "no_tune", "flag", "With --fix: repair only."),
    Option("--minimal", "minimal", "flag", "With --fix: the fewest changed keys instead of the fastest recipe."),
    Option("--min-gain", "min_gain", "number", "Percent that tuning must gain to rewrite.", default=3.0),
    Option("--keep", "keep", "text", "Keys (comma-separated) that --fix must not change.", "KEYS"),
    Option("--limit", "limit", "text", "Values that a key may take.", "KEY=V1,V2", multiple=True),
    Option("--objective", "objective", "choice", "What to look for.", choices=OBJECTIVES, default="tokens"),
    Option("--min-headroom", "min_headroom", "number", "Percent of device memory to leave free."),
)
READING = (
    Option("--stdin-filename", "stdin_filename", "text", "The name of standard input (`-`).", "PATH"),
    Option("--config", "config", "file", "This settings file only.", "FILE"),
    Option("--isolated", "isolated", "flag", "No settings files."),
    Option("--hook", "hook", "flag", "Called by a hook: YAML that is no recipe is skipped, an empty list is clean."),
)
CHECK = (
    *TARGET,
    Option("--fix", "fix", "flag", "Repair and tune in place; print the unified diff."),
    *FIXING,
    Option("--output-format", "formats", "choice", "Repeatable, with --output.", choices=FORMATS, multiple=True),
    Option("--output", "outputs", "output", "File of that format.", "FILE", multiple=True),
    Option("--fail-on", "fail_on", "choice", "Lowest level for exit 1.", choices=LEVELS),
    Option("--select", "select", "text", "Only these rules (names, codes, prefixes; comma-separated).", "RULES"),
    Option("--extend-select", "extend_select", "text", "These rules too.", "RULES"),
    Option("--ignore", "ignore", "text", "Not these rules.", "RULES"),
    Option("--profile", "profile", "choice", "Which rules run.", choices=PROFILES),
    *READING,
    Option("--quiet", "quiet", "flag", "Findings only.", short="-q"),
    Option("--verbose", "verbose", "flag", "Memory and speed of files without findings too.", short="-v"),
    Option("--statistics", "statistics", "flag", "Count findings by rule instead of showing them."),
    Option("--timing", "timing", "flag", "Print the time that every stage and rule took."),
    Option("--no-group", "no_group", "flag", "Show findings of one cause in every file that has it."),
    Option("--baseline", "baseline", "optional", f"Accept what this file lists [{BASELINE}].", "[=FILE]"),
    Option("--update-baseline", "update_baseline", "flag", "Write it; one that exists only loses entries."),
    Option("--no-ignores", "no_ignores", "flag", "Show what comments in files suppress (for gates)."),
    Option("--add-ignores", "add_ignores", "text", "Write a suppression with this reason at every finding.", "REASON"),
    Option("--base", "base", "text", "Compare memory and speed of changed recipes with this git revision.", "REV"),
    Option("--max-regression", "max_regression", "number", "With --base: percent of tokens/s to lose [3]."),
)
FIX = (*TARGET, *FIXING, *READING)
TUNE = (
    *TARGET,
    *(option for option in FIXING if option.dest not in ("diff", "no_tune")),
    Option("--write", "write", "flag", "Write the recipes, as --fix does."),
    Option("--json", "json", "flag", "Everything as JSON on standard output."),
    Option("--jobs", "jobs", "count", "Files tuned at a time.", "N"),
    Option("--cluster", "cluster", "text", "Tune on the workers of a Dask scheduler (extra `fleet`).", "ADDRESS"),
    Option("--reach", "reach", "number", "Front of speed against memory: percent slower than the best.", default=10.0),
    Option("--price", "price", "number", "Price of a GPU-hour (or `gpu-hour-price` of the settings)."),
    Option("--world-sizes", "world_sizes", "text", "Numbers of GPUs to compare; the cheapest is taken.", "N,N"),
    Option("--what-if-unsafe", "what_if_unsafe", "flag", "Also say what --unsafe-fixes would add."),
    Option("--budget", "budget", "number", "Seconds after which the scan ends with a gap."),
    Option("--agent", "agent", "flag", "Ask a language model for more candidates after the search."),
    Option("--agent-dry-run", "agent_dry_run", "flag", "Show what --agent would send; send nothing."),
    Option("--agent-url", "agent_url", "text", "Base URL of an OpenAI-compatible endpoint.", "URL"),
    Option("--agent-model", "agent_model", "text", "Name of the model there.", "NAME"),
    Option("--agent-calls", "agent_calls", "count", "Calls at most.", "N"),
    Option("--agent-tokens", "agent_tokens", "count", "Tokens at most.", "N"),
    Option("--agent-seconds", "agent_seconds", "number", "Seconds at most."),
    Option("--trials", "trials", "output", "Log of the agent, read again to resume [trials.jsonl].", "FILE"),
    *READING[:3],
)


def spelled_out(words: list[str]) -> list[str]:
    """Words for click with nothing left open: an optional value is given (click would take the next word for it), and
    a format that no `--output` follows goes to standard output (`-`), so that formats and outputs go in pairs."""
    bare = {option.flag for option in CHECK if option.kind == "optional"}
    words = [f"{word}={BASELINE}" if word in bare else word for word in words]
    if not any(word.partition("=")[0] == "--output" for word in words):
        return words
    out: list[str] = []
    early, is_open = 0, False  # outputs before their format; whether the last format has none yet
    for word in [*words, "--output-format"]:
        flag = word.partition("=")[0]
        if flag == "--output":
            early += not is_open
            is_open = False
        elif flag == "--output-format":
            if is_open:
                out += ["--output", "-"]
            is_open = early == 0
            early = max(early - 1, 0)
        out.append(word)
    return out[:-1]


def plain(words: list[str]) -> tuple[tuple[str, ...], dict[str, object]] | None:
    """Files and option values of a plain check, or None for whatever click should look at: a command, help, a fix, an
    option with a wrong value."""
    by_flag = {name: option for option in CHECK for name in (option.flag, option.short) if name}
    values: dict[str, object] = {option.dest: () if option.multiple else option.default for option in CHECK}
    files: list[str] = []
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if word == "-" or not word.startswith("-"):
            files.append(word)
            continue
        flag, equals, text = word.partition("=")
        option = by_flag.get(flag)
        if option is None or option.kind not in ("flag", "text", "count", "choice", "optional"):
            return None
        if option.kind == "flag":
            if equals or option.dest in ("fix", "diff"):
                return None
            values[option.dest] = True
            continue
        if option.kind == "optional" and not equals:
            text = BASELINE
        elif not equals:
            if index == len(words):
                return None
            text = words[index]
            index += 1
        value: object = text
        if option.kind == "count":
            if not (text.isascii() and text.isdigit()) or int(text) < 1:
                return None
            value = int(text)
        elif option.kind == "choice" and text not in option.choices:
            return None
        known = values[option.dest]
        values[option.dest] = (*known, value) if isinstance(known, tuple) else value
    return tuple(files), values
