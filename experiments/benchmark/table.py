"""The figures of the benchmark as a table for people."""

from __future__ import annotations

from typing import Any

LABELS = {
    "numpy": "NumPy, dense, float64",
    "numpy32": "NumPy, dense, float32",
    "sklearn": "scikit-learn, one regressor per function",
    "sklearn-joint": "scikit-learn, one fit of both functions",
    "gpy": "GPy, one fit of both functions",
    "botorch": "BoTorch, one fit of both functions",
}


def table(figures: dict[str, Any]) -> str:
    """Return every figure of a run as text, ratios last in each row."""
    return "\n".join(
        [
            *_header(figures),
            "",
            *_forms(figures),
            "",
            *_data_rate(figures["data_rate"]),
            "",
            *_accuracy(figures["accuracy"]),
            "",
            *_study(figures["study"]),
            "",
            *_cluster(figures["cluster"]),
            "",
            *_session(figures["session"]),
            "",
            *_tuning(figures["tuning"]),
            "",
            *_peers(figures),
            "",
            *_rest(figures),
        ]
    )


def _session(figures: dict[str, Any]) -> list[str]:
    """Return the lines on a session: a question and its answer, each of which is on the disk before it returns."""
    side, optuna, ax = figures["points_per_axis"], figures["optuna_ms"], figures["ax_ms"]
    words = f"{figures['ax_trials']} trials by its model"
    return [
        f"a session of RPOL-UCB on {side}x{side} points, {figures['tickets']} tickets, every event on the disk",
        f"  ask and tell: {figures['ask_tell_ms']:.2f} ms (median), {figures['ask_tell_worst_ms']:.1f} ms at most,"
        f" {figures['ask_tell_cpu_ms']:.2f} ms of CPU; opened again in {figures['open_s']:.2f} s",
        "  Optuna: not installed" if optuna is None else f"  Optuna's TPE, in memory: {optuna:.2f} ms (median)",
        "  Ax: not installed" if ax is None else f"  Ax, in memory, {words}: {ax:,.0f} ms (median), {figures['ax_cpu_ms']:,.0f} ms of CPU",
    ]


def _tuning(figures: dict[str, Any]) -> list[str]:
    """Return the lines on gradients of simulated studies and on fits of hyper-parameters."""
    lines = [_row("smoothed gradients, beside the mean of all others", ["parameters", "trials", "keys", "cosine", "in 95%"])]
    for name, found in figures["gradients"].items():
        numbers = [str(found["parameters"]), f"{found['trials']:,}", str(found["keys"])]
        lines.append(_row(name, [*numbers, f"{found['cosine']:.3f}", f"{found['coverage']:.1%}"]))
    for name, found in figures["descended"].items():
        lines.append(f"descent of {name}: {found['before']:.3f} -> {found['after']:.3f} on held-out trials, by {found['trials']:,} trials")
    memory = ", ".join(f"{mb:.1f} MB at T = {rounds}" for rounds, mb in figures["gradient_mb"].items())
    times = ", ".join(f"{seconds:.1f} s in {name}" for name, seconds in figures["fit_many_s"].items())
    fits = [f"{figures['fits']:,} fits of {figures['fit_points']} points: {times}"] if times else []
    ranged, refitted = (figures.get(f"{name}_round_us") for name in ("ranged", "refitted"))
    refits = [] if refitted is None else [f"a round on a ranged model {ranged:.1f} us, with fits at doubling times {refitted:.1f} us"]
    return [
        *lines,
        f"value and gradient of {figures['gradient_trials']} trials take {figures['gradient_over_plain']:.2f} times as long as the trials"
        f" alone; working memory {memory}",
        *fits,
        f"a log evidence of {figures['fit_points']} points with its gradient {figures['evidence_us']:.0f} us",
        *refits,
    ]


def _header(figures: dict[str, Any]) -> list[str]:
    side, versions = figures["points_per_axis"], figures["versions"]
    cores = "each process on one core" if figures["pinned"] else "processes not pinned to a core"
    return [
        f"RPOL-UCB on sine {side}x{side} (M = {figures['points']}), SE u = 1, lambda = 0.05, beta = 3, {figures['dtype']}",
        f"device {figures['device']}, {figures['cpu_model']}, {figures['cores']} cores, {cores}",
        ", ".join(f"{name} {version}" for name, version in versions.items()) + f"; {figures['date']}",
    ]


def _forms(figures: dict[str, Any]) -> list[str]:
    counts = [str(count) for count in figures["counts"]]
    most, times = counts[-1], figures["us"]
    lines = [
        f"microseconds per trial-round, T = {figures['horizon']}",
        _row("", [_trials(count) for count in counts] + ["x GEMM", "violation"]),
    ]
    rank = figures["rank"]["features"]
    lines.append(_row(f"XLA's GEMM [trials, {rank}] x [{rank}, {figures['points']}]", [_number(times["gemm"][c]) for c in counts]))
    for form in ("features", "product", "rows"):
        row = [_number(times[form][c]) for c in counts]
        row += [f"{times[form][most] / times['gemm'][most]:.2f}", f"{figures['violation'][form]:.4f}"]
        few = f"; {_trials(figures['rows_trials'])}" if form == "rows" else ""
        lines.append(_row(f"{form} (rank {figures['rank'][form]}{few})", row))
    ranged = [""] * (len(counts) - 1) + [_number(figures["ranged_us"]), f"{figures['ranged_over_product']:.2f}"]
    words = f"ranged, {figures['ranged_low']}..{figures['ranged_high']} (rank {figures['ranged_rank']}); x product"
    lines.append(_row(words, ranged))
    matern = [""] * (len(counts) - 1) + [_number(figures["rows_matern_us"])]
    return [*lines, _row(f"rows, Matern-5/2 ({_trials(figures['rows_trials'])})", matern)]


def _data_rate(figures: dict[str, Any]) -> list[str]:
    side, points = figures["points_per_axis"], figures["points"]
    size = f"{_trials(figures['trials'])}, T = {figures['horizon']}"
    lines = [_row(f"data-rate, {side}^4 = {points:,} points, Matern-5/2, rows", ["us", "compile, s"])]
    for label, us in figures["us"].items():
        lines.append(_row(f"{label}, {size}", [_number(us), f"{figures['compile_s'][label]:.2f}"]))
    built, peak = figures["built_mb"], figures["peak_rss_mb"]
    lines.append(f"built in {figures['build_s']:.2f} s; peak memory {built:.0f} MB by then, {peak:.0f} MB at the end")
    if figures["full_seconds"] is None:
        return [*lines, "its full size: not estimated from other grids or horizons"]
    full = f"{_trials(figures['full_trials'])} x {figures['full_horizon']} rounds of each on this one device"
    return [*lines, f"at full size, {full}: {figures['full_seconds']:.0f} s, {figures['full_peak_mb']:.0f} MB"]


def _accuracy(figures: dict[str, Any]) -> list[str]:
    lines = [
        f"largest errors over {figures['points']:,} points after {figures['horizon']:,} rounds, beside a dense float64 solve",
        _row("noise variance", ["precision", "refresh", "rank", "mean, in sd", "sd, share", "us a round"]),
    ]
    for noise, level in figures["levels"].items():
        refresh = str(level["refresh"] or "-")
        errors = [f"{level['mean_error']:.1e}", f"{level['sd_error']:.1e}", _number(level["update_us"])]
        lines.append(_row(noise, [level["precision"], refresh, str(level["rank"]), *errors]))
    return lines


def _study(figures: dict[str, Any]) -> list[str]:
    us, horizon, trials = figures["us"], f"{figures['horizon']:,}", _trials(figures["trials"])
    lines = [
        _row(f"studies on {figures['devices']} devices, M = {figures['points']:,}, T = {horizon}", ["us", "ratio"]),
        _row(f"one value, {trials}", [_number(us["single"])]),
        _row(f"{figures['values']} values, {trials} each", [_number(us["sweep"]), f"{figures['sweep_over_single']:.2f}"]),
        _row(
            f"{figures['values']} values of the model, {trials} each",
            [_number(us["model_sweep"]), f"{figures['model_sweep_over_sweep']:.2f}"],
        ),
        _row(f"one value, {figures['many']:,} trials", [_number(us["many"]), f"{figures['many_over_few']:.2f}"]),
    ]
    lines += [f"the ratio of the model's values is to the algorithm's, at most {figures['model_sweep_limit']:.1f} on a quiet machine"]
    lines += [f"the {figures['lines']} lines are {figures['cells']} cell; peak memory {figures['peak_rss_mb']:.0f} MB"]
    for run in (figures["batches"], figures["parts"]):
        size = f"{_trials(run['trials'])} x {run['horizon']:,} rounds in {run['batches']} batches of {run['parts']} parts"
        cost = f"{run['kept_s']:.2f} s with progress and checkpoints, {run['whole_s']:.2f} s in one piece without"
        lines.append(f"{size}: {cost}, {run['ratio']:.3f} times as long")
    return lines


def _cluster(figures: dict[str, Any]) -> list[str]:
    """Return the lines on workers of Dask."""
    if "note" in figures:
        return [f"workers of Dask: {figures['note']}"]
    size = f"{_trials(figures['trials'])} x {figures['horizon']:,} rounds on {figures['points_per_axis'] ** 2:,} points"
    return [
        f"{figures['workers']} workers of Dask ({figures['dask']}): {figures['tasks']:,} tasks without work,"
        f" {figures['tasks_a_second']:,.0f} a second, {figures['task_ms']:.1f} ms each; memory grew by {figures['grown_mb']:.0f} MB",
        f"{size}: {figures['workers_s']:.2f} s by workers, {figures['here_s']:.2f} s by one process on all cores,"
        f" {figures['workers_over_here']:.3f} times as long",
    ]


def _peers(figures: dict[str, Any]) -> list[str]:
    short, long, most = str(figures["short_horizon"]), str(figures["horizon"]), _trials(str(figures["counts"][-1]))
    lines = [
        f"one trial at a time in Python, every round fitted anew; ratios to {most} of each version of the feature form at the same T",
        _row("microseconds per trial-round", [f"T={short}", f"T={long}", "/features", "/features", "/product", "/product", "violation"]),
    ]
    for name, peer in figures["peers"].items():
        if "us" not in peer:
            lines.append(_row(LABELS[name], [peer["note"]]))
            continue
        row = [_number(peer["us"].get(mark)) for mark in (short, long)]
        for form in ("features", "product"):
            row += [_ratio(peer["us"].get(mark), figures["own_us"][form][mark]) for mark in (short, long)]
        lines.append(_row(LABELS[name], [*row, f"{peer['violation']:.4f}"]))
    for form in ("features", "product"):
        own = [_number(figures["own_us"][form][mark]) for mark in (short, long)]
        lines.append(_row(f"jaxbandit, {form}, {most}", own))
    return lines


def _rest(figures: dict[str, Any]) -> list[str]:
    compiled = figures["compile_seconds"]
    lines = [
        "violation: mean positive part of the constraint at the chosen points, over all trials of ours and the one of a peer's",
        "compile (first call - best later call): " + ", ".join(f"{form} {seconds:.2f} s" for form, seconds in compiled.items()),
        f"peak memory of the process that ran every form: {figures['peak_rss_mb']:.0f} MB",
    ]
    two = figures["devices"]
    if two is None:
        return [*lines, "two devices: not measured (needs two CPU cores and no accelerator)"]
    for form in ("features", "product"):
        one, both = two["1"][form], two["2"][form]
        lines.append(f"{form} on two devices, one per core: {_number(both)} us, {one / both:.2f}x one device's {_number(one)} us")
    return lines


def _row(label: str, cells: list[str]) -> str:
    return f"{label:<44s}" + "".join(f"{cell:>12s}" for cell in cells)


def _trials(count: str | int) -> str:
    return f"{count} trial" + ("" if str(count) == "1" else "s")


def _number(value: float | None) -> str:
    """Return a number with three digits or more, thousands apart; a dash for what was not measured."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _ratio(value: float | None, own: float) -> str:
    return "-" if value is None else f"{_number(value / own)}x"
