"""The command line: each command says what it takes; what it does lies elsewhere and is imported when called."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvgym.errors import KVGymError
from kvgym.interrupts import told

if TYPE_CHECKING:
    from rich.console import Console

    from kvgym.calibration.calibrating import Calibrated

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Compare routing and eviction policies for LLM workers with prefix caches.",
)

GSP, FLEET, ROUTER, EVICTION = "gsp_small", "l40x4", "lbgr_release", "rlt"
"""What `run` and `watch` take by default."""
Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object, for programs.")]
Config = Annotated[str, typer.Argument(help="YAML file, or the name of a comparison in configs/compare.")]
Seeds = Annotated[int | None, typer.Option(min=1, help="Number of seeds; default: the configuration's.")]
Jobs = Annotated[int | None, typer.Option(min=1, help="Processes; default: one per CPU.")]
Sets = Annotated[list[str] | None, typer.Option("--set", help="Change a setting, as in cluster.workers=8; repeatable.")]


def main() -> None:
    """Run the command line; a `KVGymError` becomes one line on stderr and exit code 2, Ctrl-C one and 130."""
    sys.path.append(os.getcwd())  # plug-ins named module:attr may lie in the current folder
    try:
        with told():
            app()
    except KVGymError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except MemoryError as error:
        reason = " ".join(str(error).split())
        print(f"error: out of memory{': ' * bool(reason)}{reason}; take fewer requests or workers", file=sys.stderr)
        sys.exit(2)


@app.command("list")
def list_(
    family: Annotated[str | None, typer.Argument(help="One family only, for example routing.")] = None,
    as_json: Json = False,
) -> None:
    """List what can be named: workloads, routing, eviction, costs, clusters, envs, comparisons, "signals fields" ..."""
    from kvgym.harness.tools.catalogue import catalogue

    families = catalogue(family)
    if as_json:
        _print_json(
            {title: [{"name": name, "sentence": sentence} for name, sentence in families[title]] for title in families}
        )
        return
    for title, rows in families.items():
        print(title)
        for name, sentence in rows:
            print(f"  {name:<22} {sentence}".rstrip())


@app.command()
def run(
    workload: Annotated[str, typer.Option(help="Preset name, YAML file, or `kvgym import`'s file.")] = GSP,
    cluster: Annotated[str, typer.Option(help="Preset name or YAML file.")] = FLEET,
    routing: Annotated[str, typer.Option(help="Routing controller, or module:attr.")] = ROUTER,
    eviction: Annotated[str, typer.Option(help="Eviction policy, or module:attr.")] = EVICTION,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the episode.")] = 0,
    records: Annotated[Path | None, typer.Option(help="Write the request records to this Parquet file.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Write a trace for ui.perfetto.dev to this JSON file.")] = None,
    set_: Sets = None,
    as_json: Json = False,
) -> None:
    """Run one cell with one seed and print what came out; --set reaches workload.*, cluster.*, signals.*, ..."""
    from kvgym.harness.report.single_run import print_run
    from kvgym.harness.tools.single import run_single

    with told(lambda: "the run was not finished"):
        result = run_single(workload, cluster, routing, eviction, seed, set_ or [], records, trace)
    _answer(as_json, result, lambda console: print_run(console, result))


@app.command()
def watch(
    config: Annotated[str | None, typer.Argument(help="Comparison to take a cell of; none: as for `run`.")] = None,
    workload: Annotated[str | None, typer.Option(help="Workload by its label; default: the first.")] = None,
    cluster: Annotated[str | None, typer.Option(help="Fleet, likewise.")] = None,
    routing: Annotated[str | None, typer.Option(help="Routing controller, likewise.")] = None,
    eviction: Annotated[str | None, typer.Option(help="Eviction policy, likewise.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed; default: the configuration's first, or 0.")] = None,
    speed: Annotated[float, typer.Option(min=0, help="Simulated seconds a second; 0: as fast as it goes.")] = 5.0,
    every: Annotated[int, typer.Option(min=0, help="Without a terminal: decisions a picture; 0: ten in all.")] = 0,
    set_: Sets = None,
    as_json: Json = False,
) -> None:
    """Watch one cell run in the terminal (without one, some pictures are printed), then print what came out."""
    from kvgym.harness.report.console import make_console
    from kvgym.harness.report.single_run import print_run
    from kvgym.harness.tools.watch import Watch, pick_cell

    chosen = {"workload": workload, "cluster": cluster, "routing": routing, "eviction": eviction}
    if config is None:
        defaults = {"workload": GSP, "cluster": FLEET, "routing": ROUTER, "eviction": EVICTION}
        chosen = {name: value or defaults[name] for name, value in chosen.items()}
    cell, measure, first = pick_cell(config, chosen, set_ or [])
    shown = make_console(sys.stderr if as_json else None)
    watching = Watch(cell, measure, first if seed is None else seed, shown, speed, every)
    with told(lambda: watching.summary):
        result = watching.run()
    _answer(as_json, result, lambda console: print_run(console, result))


@app.command()
def compare(
    config: Config,
    seeds: Seeds = None,
    jobs: Jobs = None,
    out: Annotated[Path | None, typer.Option(help="Output folder; default: results/NAME-IDENTITY.")] = None,
    posterior: Annotated[int, typer.Option(min=0, help="Play it in so many plausible clusters instead.")] = 0,
    draws: Annotated[Path | None, typer.Option(help="Costs drawn by `kvgym calibrate`; none: a prior.")] = None,
    set_: Sets = None,
    as_json: Json = False,
) -> None:
    """Compare policies over paired seeds, and say which is best; runs that the output folder holds are kept."""
    from rich.console import Console

    from kvgym.config.loader import mistakes_in
    from kvgym.harness.report.console import say
    from kvgym.harness.report.tables import print_comparison
    from kvgym.harness.report.verdict import plain_verdicts
    from kvgym.harness.tools.comparison import compare as run_compare

    data = _comparison(config, seeds, set_)
    left = "finished runs are kept, the same command continues"
    if posterior or draws:
        with told(lambda: left), mistakes_in(config, set_ or []):
            _compare_plausible(data, posterior, draws, jobs, as_json)
        return
    with told(lambda: left), mistakes_in(config, set_ or []):
        done = run_compare(data, out, jobs, Console(stderr=True))

    def show(console: Console) -> None:
        print_comparison(console, done.summary)
        parts = "report.html, report.md, summary.csv, summary.json, timing.csv, manifest.json, records/, samples/"
        say(console, f"files: {done.folder} ({parts})")

    found = {"cells": [cell.brief for cell in done.summary.cells], "verdicts": plain_verdicts(done.summary)}
    _answer(as_json, {"out": str(done.folder), "deterministic": done.deterministic, **found}, show)


@app.command()
def sensitivity(
    config: Config,
    seeds: Seeds = None,
    jobs: Jobs = None,
    set_: Sets = None,
    as_json: Json = False,
) -> None:
    """Move each constant of each fleet, one at a time from half to double, and say where another pair wins."""
    from rich.console import Console

    from kvgym.config.loader import mistakes_in
    from kvgym.harness.report.certainty import plain, print_cards
    from kvgym.harness.tools.plausible import cards

    data = _comparison(config, seeds, set_)
    with told(lambda: "finished runs are kept, the same command continues"), mistakes_in(config, set_ or []):
        found = cards(data, jobs, Console(stderr=True))
    _answer(as_json, {"cards": plain(found)}, lambda console: print_cards(console, found))


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="Output folder of a comparison, finished or not.")],
    html: Annotated[Path | None, typer.Option(help="The page's file; default: report.html in the folder.")] = None,
    as_json: Json = False,
) -> None:
    """Write report.md and the page of a comparison's folder again."""
    from kvgym.harness.compare.results import read_results
    from kvgym.harness.report.console import say
    from kvgym.harness.report.page import write_page
    from kvgym.harness.report.tables import missing_lines, print_verdicts, write_markdown
    from kvgym.harness.report.verdict import plain_verdicts

    results = read_results(folder)
    page = write_page(results, html)
    write_markdown(results)
    files = {"html": str(page), "markdown": str(folder / "report.md")}

    def show(console: Console) -> None:
        print_verdicts(console, results.summary)
        say(console, *missing_lines(results), f"files: {', '.join(files.values())}")

    found = {"missing_runs": len(results.missing), "verdicts": plain_verdicts(results.summary)}
    _answer(as_json, {**files, **found}, show)


@app.command()
def explain(
    folder: Annotated[Path | None, typer.Argument(help="Output folder of a comparison; none: run one cell.")] = None,
    cell: Annotated[
        str | None, typer.Option(help="WORKLOAD/CLUSTER/ROUTING/EVICTION of the folder; none: all.")
    ] = None,
    workload: Annotated[str | None, typer.Option(help="Without a folder: as for `run`, and so on.")] = None,
    cluster: Annotated[str | None, typer.Option(help="Fleet.")] = None,
    routing: Annotated[str | None, typer.Option(help="Routing controller.")] = None,
    eviction: Annotated[str | None, typer.Option(help="Eviction policy.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the episode.")] = None,
    set_: Sets = None,
    as_json: Json = False,
) -> None:
    """Say why hits are missing: where prompt tokens went, from never seen before to evicted, to the token."""
    from rich.console import Console

    from kvgym.errors import ConfigError
    from kvgym.harness.tools.explain import explain_folder, explain_run, print_answer

    chosen = {"--workload": workload, "--cluster": cluster, "--routing": routing, "--eviction": eviction}
    given = [name for name, value in {**chosen, "--seed": seed, "--set": set_}.items() if value is not None]
    if folder is None and cell is not None:
        raise ConfigError("--cell names a cell of a folder; give the folder, or --workload, --routing and so on")
    if folder is not None and given:
        raise ConfigError(f"{', '.join(given)} are for a run of its own; choose a cell of a folder with --cell")
    names = [value or default for value, default in zip(chosen.values(), (GSP, FLEET, ROUTER, EVICTION), strict=True)]
    with told(lambda: "nothing was explained"):
        if folder is not None:
            found = explain_folder(folder, cell, Console(stderr=True))
        else:
            workload, cluster, routing, eviction = names
            found = explain_run(workload, cluster, routing, eviction, seed or 0, set_ or [])
    cells = {"cells": [reasons.plain for reasons in found.cells]}
    _answer(as_json, cells, lambda console: print_answer(console, found))


@app.command()
def plan(
    config: Annotated[str, typer.Argument(help="Comparison with an `slo`: YAML file, or a name in configs/compare.")],
    share: Annotated[float, typer.Option(help="Share of the requests that must keep the slo; 0.95: P95.")] = 0.95,
    most: Annotated[int, typer.Option(min=1, help="Largest fleet to try, workers.")] = 64,
    load: Annotated[bool, typer.Option(help="Also find the highest load that the fleet as it is keeps.")] = True,
    seeds: Seeds = None,
    jobs: Jobs = None,
    set_: Sets = None,
    as_json: Json = False,
) -> None:
    """Say how many workers each pair needs to keep an objective, what the second best costs, and the load it bears."""
    from rich.console import Console

    from kvgym.config.loader import mistakes_in
    from kvgym.config.options import to_plain
    from kvgym.harness.report.sizing_report import print_sizing
    from kvgym.harness.tools.sizing import size_fleets

    data = _comparison(config, seeds, set_)
    with told(lambda: "nothing was planned to the end"), mistakes_in(config, set_ or []):
        found = size_fleets(data, share, most, load, jobs, Console(stderr=True))
    objective = {"slo": to_plain(found.objective.slo), "share": share, "seeds": list(found.objective.seeds)}
    value = {"objective": objective, "runs": found.runs, "pairs": [each.plain for each in found.sized]}
    _answer(as_json, value, lambda console: print_sizing(console, found))


@app.command()
def trace(
    folder: Annotated[Path, typer.Argument(help="Output folder of a comparison, finished or not.")],
    cell: Annotated[str, typer.Option(help="WORKLOAD/CLUSTER/ROUTING/EVICTION as in the tables.")],
    out: Annotated[Path, typer.Option(help="The JSON file.")],
    seed: Annotated[int, typer.Option(min=0, help="Seed of the run.")] = 0,
    as_json: Json = False,
) -> None:
    """Write one run of a comparison as a trace for ui.perfetto.dev."""
    from kvgym.harness.compare.results import find_run
    from kvgym.harness.report.console import say
    from kvgym.harness.tools.trace import write_trace

    events = write_trace(out, *find_run(folder, cell, seed))
    where = f"{out}: {events:,} events; open it in ui.perfetto.dev"
    _answer(as_json, {"out": str(out), "events": events}, lambda console: say(console, where))


@app.command("import")
def import_(
    file: Annotated[str, typer.Argument(help="Request log: JSON, Parquet or CSV; plain or packed.")],
    out: Annotated[Path | None, typer.Option(help="NAME.kvgw or NAME.parquet; default: the log's name .kvgw.")] = None,
    format_: Annotated[
        str, typer.Option("--format", help="openai, sglang, sharegpt, mooncake, lengths, vllm.")
    ] = "auto",
    tokenizer: Annotated[
        str | None, typer.Option(help="Hugging Face tokenizer.json; default: a built-in counter.")
    ] = None,
    keep_text: Annotated[bool, typer.Option("--keep-text", help="Keep prompts and answers as text.")] = False,
    repair: Annotated[bool, typer.Option("--repair", help="Leave out bad rows, accept late ones.")] = False,
    as_json: Json = False,
) -> None:
    """Turn a log of one's own requests into a workload file."""
    from rich.console import Console

    from kvgym.harness.report.console import print_table, say
    from kvgym.logs.importing import import_log

    console = Console(stderr=True)
    with told(lambda: "no workload file was written"):
        made, facts = import_log(file, out, format_, tokenizer, keep_text=keep_text, repair=repair, console=console)
    found = {"out": str(made), **facts}

    def show(console: Console) -> None:
        told_apart = ("notes", "fields_not_read")
        shown = {name: value for name, value in found.items() if value not in (0, None) and name not in told_apart}
        print_table(console, ["fact", "value"], [[name, str(value)] for name, value in shown.items()])
        say(console, "", *(f"- {note}." for note in facts["notes"]))
        use = f"`source: imported`, `path: {made}` and more settings"
        say(console, "", f"as a workload: --workload {made}, or a YAML file with {use}")
        say(console, f"what of it can be reused: kvgym reuse {made}")

    _answer(as_json, found, show)


@app.command()
def reuse(
    workload: Annotated[str, typer.Argument(help="Preset name, YAML file, log, or `kvgym import`'s file.")],
    seed: Annotated[int, typer.Option(min=0, help="Seed of the workload.")] = 0,
    picture: Annotated[Path | None, typer.Option(help="SVG file for the hit rate over the cache's size.")] = None,
    as_json: Json = False,
) -> None:
    """Say what a workload could reuse: by an endless cache, by one LRU cache of any size, and where."""
    from kvgym.config.loader import mistakes_in, resolve_workload
    from kvgym.harness.measure.reuse import measure_reuse
    from kvgym.harness.report.reused import plain, print_reuse, write_picture

    with mistakes_in(workload):
        found = measure_reuse(resolve_workload(workload).generate(seed))
    if picture is not None:
        write_picture(picture, found)
    _answer(as_json, plain(found), lambda console: print_reuse(console, found))


@app.command("serve-workers")
def serve_workers(
    cluster: Annotated[str, typer.Argument(help="Live cluster: preset name or YAML file.")],
    eviction: Annotated[str, typer.Option(help="Eviction policy of the servers.")] = "lru",
    logs: Annotated[Path | None, typer.Option(help="Folder for the servers' output; default: a temporary one.")] = None,
    as_json: Json = False,
) -> None:
    """Start the SGLang servers of a live cluster, print where they are, and keep them until Ctrl-C."""
    from rich.console import Console

    from kvgym.harness.report.console import print_table
    from kvgym.harness.tools.serve import serve

    def ready(facts: dict[str, Any]) -> None:
        rows = [[url, f"{tokens:,}"] for url, tokens in zip(facts["urls"], facts["capacity_tokens"], strict=True)]
        _answer(as_json, facts, lambda console: print_table(console, ["server", "capacity, tokens"], rows))

    with told(lambda: "its servers are stopped"):
        serve(cluster, eviction, logs, Console(stderr=True), ready)


@app.command()
def calibrate(
    files: Annotated[
        list[Path], typer.Argument(help="Step tables (.csv), records (.parquet), benchmark output (.jsonl).")
    ],
    out: Annotated[Path, typer.Option(help="Cluster file to write; its draws and a picture go beside it.")],
    cluster: Annotated[str, typer.Option(help="Cluster whose cost is fitted: preset name or YAML file.")] = FLEET,
    where: Annotated[list[str] | None, typer.Option(help="COLUMN=VALUE of a table about several; repeatable.")] = None,
    as_json: Json = False,
) -> None:
    """Fit what an engine step costs to measurements, with intervals, and write a cluster that uses it."""
    from kvgym.calibration.calibrating import calibrate as fit_files

    _answer_fit(as_json, fit_files(files, cluster, where or [], out))


@app.command()
def profile(
    url: Annotated[str, typer.Argument(help="A running SGLang server that nobody else uses meanwhile.")],
    out: Annotated[Path, typer.Option(help="Cluster file to write; draws, observations, a picture go beside it.")],
    api_key_variable: Annotated[str, typer.Option(help="Environment variable with the server's API key.")] = "",
    vocab_size: Annotated[int, typer.Option(min=0, help="Of the model; 0: as its config.json says.")] = 0,
    repeats: Annotated[int, typer.Option(min=1, help="How often each prompt length and batch is measured.")] = 5,
    as_json: Json = False,
) -> None:
    """Measure a live server with a designed set of prompts, and write a cluster that costs what it costs."""
    from rich.console import Console

    from kvgym.calibration.calibrating import profile as measure

    told_on = Console(stderr=True, highlight=False, markup=False)
    with told(lambda: "nothing was written"):
        found = measure(url, out, api_key_variable, vocab_size, repeats, told_on.print)
    _answer_fit(as_json, found)


@app.command()
def route(
    config: Annotated[Path | None, typer.Argument(help="YAML file of settings; none: the options alone.")] = None,
    routing: Annotated[str | None, typer.Option(help="Routing controller, module:attr, or a model's file.")] = None,
    worker: Annotated[list[str] | None, typer.Option(help="A server, http://host:port; repeatable.")] = None,
    listen: Annotated[str | None, typer.Option(help="Address and port to listen on.")] = None,
    tokenizer: Annotated[str | None, typer.Option(help="Model folder or tokenizer.json; none: texts.")] = None,
    shadow: Annotated[list[str] | None, typer.Option(help="Controller that only watches; repeatable.")] = None,
    log: Annotated[Path | None, typer.Option(help="Request log to append to.")] = None,
    set_: Sets = None,
    as_json: Json = False,
) -> None:
    """Serve a controller as an OpenAI-compatible router in front of running servers; `kvgym list "route fields"`."""
    from rich.console import Console

    from kvgym.proxy.command_line import make_settings, ready_line, reloaded
    from kvgym.proxy.service import CHILD_VARIABLE, serve

    given = {"routing": routing, "workers": worker, "listen": listen, "tokenizer": tokenizer, "shadows": shadow,
             "log": None if log is None else str(log)}  # fmt: skip
    settings = make_settings(config, given, set_ or [])
    console = Console(stderr=True, highlight=False, markup=False)
    told_on = functools.partial(console.print, soft_wrap=True)

    def ready(facts: dict[str, Any]) -> None:
        if as_json and CHILD_VARIABLE not in os.environ:
            _print_json(facts)
        told_on(ready_line(facts))

    serve(settings, lambda: reloaded(config, settings), told_on, ready)


@app.command()
def tune(
    config: Annotated[str, typer.Argument(help="Comparison with the workloads and fleets: YAML file or name.")],
    out: Annotated[Path, typer.Option(help="YAML file for the best options; `kvgym route` takes it.")],
    routing: Annotated[str, typer.Option(help="Routing controller to tune.")] = "lbgr",
    option: Annotated[list[str] | None, typer.Option(help="NAME or NAME=LOW:HIGH; repeatable; none: all.")] = None,
    trials: Annotated[int, typer.Option(min=1, help="How many more options to try.")] = 60,
    timeout_s: Annotated[float | None, typer.Option(min=1, help="Ends the search earlier.")] = None,
    jobs: Jobs = None,
    set_: Sets = None,
    as_json: Json = False,
) -> None:
    """Tune a router's options on half of the sessions, and judge them on the other half; the study is kept."""
    from rich.console import Console

    from kvgym.config.loader import mistakes_in
    from kvgym.harness.report.tuned import plain, print_tuned
    from kvgym.harness.tools.tuning import tune as search

    data = _comparison(config, None, set_)
    with told(lambda: "the study is kept, the same command continues"), mistakes_in(config, set_ or []):
        found = search(data, routing, out, option or [], trials, timeout_s, jobs, Console(stderr=True))
    _answer(as_json, {"out": str(out), **plain(found)}, lambda console: print_tuned(console, found, out))


@app.command()
def theory(
    out: Annotated[Path | None, typer.Option(help="Folder for theory.json and theory.svg.")] = None,
    as_json: Json = False,
) -> None:
    """Measure competitive ratios of eviction policies against the offline optimum."""
    from kvgym.theory.ratio_report import measure_into, print_ratios

    with told(lambda: "nothing was measured to the end"):
        results = measure_into(out)
    _answer(as_json, results, lambda console: print_ratios(console, results))


@app.command()
def validate(
    runs: Annotated[list[str] | None, typer.Argument(help="Measured runs to replay; none: all.")] = None,
    out: Annotated[Path | None, typer.Option(help="Markdown page to write, every figure in it.")] = None,
    as_json: Json = False,
) -> None:
    """Replay measured runs of real engines and fleets, and say how far the simulator is from them."""
    from kvgym.validation.validation_report import print_validation, summary, validate, write_page

    with told(lambda: "nothing was replayed to the end"):
        found = validate(runs or ())
    if out is not None:
        write_page(out, found)
    _answer(as_json, {"summary": summary(found)}, lambda console: print_validation(console, found))


@app.command()
def bench(as_json: Json = False) -> None:
    """Measure engine speed, steps per second, memory and compile time."""
    from kvgym.harness.tools.bench import measure, print_figures

    with told(lambda: "nothing was measured to the end"):
        results = measure()
    _answer(as_json, results, lambda console: print_figures(console, results))


def _comparison(config: str, seeds: int | None, changes: list[str] | None) -> dict[str, Any]:
    """Return a comparison's plain data with what the command line changes."""
    from kvgym.config.loader import load_config
    from kvgym.harness.compare.overrides import override_compare

    data = override_compare(load_config("compare", config), changes or [])
    return data if seeds is None else {**data, "seeds": seeds}


def _compare_plausible(data: dict[str, Any], number: int, draws: Path | None, jobs: int | None, as_json: bool) -> None:
    from rich.console import Console

    from kvgym.harness.compare.grid import load_compare
    from kvgym.harness.report.certainty import plain, print_chances
    from kvgym.harness.tools.plausible import PRIOR_SD, chances

    found = chances(data, number, draws, jobs, Console(stderr=True))
    baseline = load_compare(data).baseline_pair.labels
    source = f"{number} clusters drawn from {draws or f'a prior (each constant {PRIOR_SD:.0%} up or down)'}"
    _answer(as_json, {"chances": plain(found)}, lambda console: print_chances(console, found, baseline, source))


def _answer_fit(as_json: bool, found: Calibrated) -> None:
    from kvgym.calibration.fit_report import plain, print_fit
    from kvgym.harness.report.console import say

    def show(console: Console) -> None:
        print_fit(console, found.fit, found.rows, found.notes)
        say(console, f"files: {', '.join(map(str, found.files))}")

    _answer(as_json, {**plain(found.fit, found.rows), "notes": found.notes, "files": list(map(str, found.files))}, show)


def _answer(as_json: bool, value: dict[str, Any], show: Callable[[Console], None]) -> None:
    """Print what a command has found: `value` for programs, or what `show` prints for people."""
    from kvgym.harness.report.console import answer

    answer(as_json, value, show)


def _print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value), flush=True)
