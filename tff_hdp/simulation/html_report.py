"""A run as one HTML file to hand on: what was trained, and who is promised what.

The file loads nothing, runs no script and stands alone. All that comes from a run
folder is escaped. Imports no TensorFlow.
"""

import html
import io
import json
import math
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from tff_hdp.errors import FileError
from tff_hdp.privacy import AccountRow, RoundLedger
from tff_hdp.reading import read_json
from tff_hdp.simulation.plain_words import WEAK, conditions, promise, seen_by
from tff_hdp.simulation.report import Run

# Rounds at which an account is drawn.
_POINTS = 24
# What metrics.csv counts of clients' data without noise.
_COUNTS = ("rejected", "empty_zones", "left_out_zones", "saturated", "clipped")
_STYLE = """
body { font: 16px/1.5 sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem } h2 { font-size: 1.2rem; margin-top: 2rem }
table { border-collapse: collapse; margin: 1rem 0; font-size: .9rem }
th, td { border: 1px solid #bbb; padding: .25rem .6rem; text-align: left }
td, pre { overflow-wrap: anywhere }
small { color: #555 }
pre { white-space: pre-wrap; background: #f4f4f4; padding: .6rem }
.none, .weak, .some { border-left: 4px solid #070; padding-left: .8rem }
.weak { border-color: #c70 }
.none { border-color: #b00 }
svg { max-width: 100%; height: auto }
@media print {
  body { margin: 0; max-width: none; font-size: 11px }
  h2 { break-after: avoid }
  svg, tr, pre, .none, .weak, .some { break-inside: avoid }
}
"""


def html_report(
    run: Run,
    *,
    command: str,
    curves: Mapping[str, pd.Series],
    headline: str,
    observers: Mapping[str, str],
) -> str:
    """The whole page.

    Args:
      run: The finished run.
      command: The command line that runs it.
      curves: Of `epsilon_curves`.
      headline: The test metric that the system is judged by.
      observers: What observers of its system alone are (`RunConfig.observers`).
    """
    config = read_json(run.path / "config.json")
    privacy = read_json(run.path / "privacy.json")
    resolved = config["resolved"]
    description = str(resolved.get("task", "")).splitlines()
    rounds = privacy["last_round"]
    how = "" if run.label == config["system"] else f" ({run.label})"
    title = f"{run.flags['task']}, trained with {config['system']}{how}"
    parts = [
        _tag("h1", title),
        _tag("h2", "What was trained on what"),
        _list([*description, f"{rounds} rounds of {config['system']}."]),
        _tag("h2", "Who is promised what"),
        *_promises(run, observers),
        _tag("h2", "Epsilon over rounds"),
        *_epsilons(run, curves),
        _tag("h2", f"Test {headline}"),
        *_tested(run, privacy, headline),
        _tag("h2", "Faults"),
        _list(_faults(run, privacy)),
        *_attacks(run),
        _tag("h2", "Notes"),
        _list(run.notes),
        _tag("h2", "How to run it again"),
        _tag("pre", command),
        _table(
            [{"package": name, "version": v} for name, v in config["versions"].items()]
            + [{"package": "git commit", "version": config["git_commit"]}]
        ),
        _tag("h2", "Every setting"),
        _table([{"setting": k, "value": _word(v)} for k, v in run.flags.items()]),
    ]
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}"/>',
            f"{_tag('title', title)}\n<style>{_STYLE}</style>\n</head>\n<body>",
            *parts,
            "</body>\n</html>\n",
        ]
    )


def epsilon_curves(
    state: Mapping[str, Any], new_ledger: Callable[[], RoundLedger[Any]], delta: float
) -> dict[str, pd.Series]:
    """Epsilon by RDP after some of the rounds, of the client worst off.

    Args:
      state: A ledger's `state_dict`.
      new_ledger: Returns an empty ledger of its kind.
      delta: In (0, 1).

    Returns:
      For each observer with a guarantee throughout, a series by round; super-nodes
      of every level are an observer.
    """
    total = sum(entry["rounds"] for entry in state["history"])
    step = max(1, math.ceil(total / _POINTS))
    points = sorted({*range(step, total + 1, step), total} - {0})
    found: dict[str, dict[int, float]] = {}
    for point in points:
        ledger = new_ledger()
        ledger.load_state_dict({**state, "history": _first(state["history"], point)})
        for row in ledger.account(delta, ("rdp",)):
            epsilon = row.epsilon("rdp")
            of_observer = found.setdefault(seen_by(row), {})
            of_observer[point] = max(epsilon, of_observer.get(point, 0.0))
    return {
        observer: pd.Series(epsilons)
        for observer, epsilons in found.items()
        if all(map(math.isfinite, epsilons.values()))
    }


def _first(history: Sequence[Mapping[str, Any]], rounds: int) -> list[dict[str, Any]]:
    """The history's first rounds."""
    kept = []
    for entry in history:
        count = min(rounds, entry["rounds"])
        if count:
            kept.append({**entry, "rounds": count})
        rounds -= count
    return kept


# The sections ---------------------------------------------------------------------


def _promises(run: Run, observers: Mapping[str, str]) -> list[str]:
    if not run.accounts:
        return [_tag("p", "No noise was added: no observer is promised anything.")]
    intro = (
        "A promise is to one client, with all its data, against one observer. Epsilon "
        "bounds what that observer can learn from the client's taking part: 0 is "
        f"nothing, below 1 is little, above {WEAK:g} is a weak promise. Delta is the "
        "probability with which the bound may fail. Each promise holds under the "
        "conditions below it, and no others: each in plain words, and for whoever "
        "checks the account in its own terms, in small print."
    )
    table = _table([_at_a_glance(row) for row in run.accounts])
    found = [_promise(row, observers) for row in run.accounts]
    return [_tag("p", intro), table, *found]


def _at_a_glance(row: AccountRow) -> dict[str, str]:
    epsilon = row.epsilon()
    return {
        "against": seen_by(row),
        "client": row.client_kind + ("" if row.zone is None else f", zone {row.zone}"),
        "epsilon": "none" if epsilon == math.inf else f"{epsilon:.4g}",
        "delta": f"{row.delta:g}",
        "neighbours": row.neighbours.replace("_", " "),
        "sampling": row.sampling,
    }


def _promise(row: AccountRow, observers: Mapping[str, str]) -> str:
    epsilon = row.epsilon()
    kind = "none" if epsilon == math.inf else "weak" if epsilon > WEAK else "some"
    items = "".join(
        "<li>"
        + (f"{html.escape(plain)} " if plain else "")
        + _tag("small", exact)
        + "</li>"
        for plain, exact in conditions(row)
    )
    return _tag(
        "div", f"{_tag('p', promise(row, observers))}<ul>{items}</ul>", kind=kind
    )


def _epsilons(run: Run, curves: Mapping[str, pd.Series]) -> list[str]:
    if not (curves and run.accounts):
        return [_tag("p", "No observer has a guarantee whose growth could be drawn.")]
    basis = (
        f"By RDP, delta {run.accounts[0].delta:g}, for the client worst off; "
        "neighbours, sampling and assumptions of each observer as above. Against an "
        "observer that is not drawn, some client has no guarantee."
    )
    return [
        _svg(lambda axes: _draw_epsilons(axes, curves), "epsilon"),
        _tag("p", basis),
    ]


def _tested(run: Run, privacy: Mapping[str, Any], headline: str) -> list[str]:
    """What the tests gave, if the epsilons above cover their being told."""
    if run.accounts and headline not in privacy.get("published", [headline]):
        told = f"{headline} tells of clients' data without noise, which no epsilon "
        return [_tag("p", told + "covers: it is in metrics.csv, for the operator.")]
    return [
        _reached(run.metrics, headline),
        _svg(lambda axes: _draw_metric(axes, run.metrics, headline), "metric"),
    ]


def _reached(metrics: pd.DataFrame, headline: str) -> str:
    tested = metrics[["round", headline]].dropna()
    if tested.empty:
        return _tag("p", "Never tested.")
    last = tested.iloc[-1]
    after = f"{last[headline]:.4g} after round {int(last['round'])}"
    return _tag("p", f"{after}; what is tested on is said above.")


def _faults(run: Run, privacy: Mapping[str, Any]) -> list[str]:
    lines = []
    lost = privacy["rounds"] - privacy["last_round"]
    if run.accounts and lost > 0:
        lines.append(
            f"{lost} rounds were released, lost and run again: accounted twice."
        )
    for name in ("drop_rate", "supernode_failure_rate", "byzantine"):
        if run.flags.get(name):
            lines.append(f"Asked for: {name} = {_word(run.flags[name])}.")
    if run.flags.get("online_rate", 1.0) < 1.0:
        lines.append(f"Asked for: online_rate = {_word(run.flags['online_rate'])}.")
    counted = [name for name in _COUNTS if name in run.metrics]
    if not run.accounts:
        lines += [f"{name}: {run.metrics[name].sum():g} in all." for name in counted]
    elif counted:
        lines.append(
            f"Counted without noise, beyond every epsilon: {', '.join(counted)}. "
            "They are in metrics.csv, for the operator."
        )
    return lines or ["None was asked for and none was counted."]


def _attacks(run: Run) -> list[str]:
    """What scripts/attack.py left beneath the run folder's `attacks`: a table each."""
    files = sorted((run.path / "attacks").rglob("rows.json"))
    tables = [
        _table(
            [
                {"of the attack": name, "value": value}
                for name, value in row.items()
                if value is not None or name == "epsilon"
            ]
        )
        for file in files
        for row in _attack_rows(file)
    ]
    if not tables:
        return []
    whose = (
        "Each is on a federation of the attack's own, as its rows describe it, and "
        "epsilon is that of its observer there."
    )
    return [_tag("h2", "What attacks achieved"), _tag("p", whose), *tables]


def _attack_rows(file: pathlib.Path) -> list[dict[str, Any]]:
    try:
        rows = json.loads(file.read_text())  # may hold infinities
    except (ValueError, RecursionError) as error:
        raise FileError(file, f"holds no attack's rows: {error}") from error
    if not isinstance(rows, list) or not all(map(_is_row, rows)):
        raise FileError(file, "holds no attack's rows: no list of flat objects")
    return rows


def _is_row(found: Any) -> bool:
    """Whether JSON is an object without others in it."""
    is_object = isinstance(found, dict)
    return is_object and not any(isinstance(v, dict | list) for v in found.values())


# Drawing ----------------------------------------------------------------------------


def _draw_epsilons(axes: Any, curves: Mapping[str, pd.Series]) -> None:
    # Thinner and thinner, as observers may have the same epsilons.
    for i, (observer, series) in enumerate(curves.items()):
        width = 1.0 + 0.8 * (len(curves) - 1 - i)
        axes.plot(series.index, series.to_numpy(), label=observer, linewidth=width)
    axes.set(xlabel="round", ylabel="epsilon (RDP)", ylim=(0, None))
    axes.legend(frameon=False)


def _draw_metric(axes: Any, metrics: pd.DataFrame, headline: str) -> None:
    tested = metrics[["round", headline]].dropna()
    axes.plot(tested["round"], tested[headline], marker=".")
    axes.set(xlabel="round", ylabel=f"test {headline}")


def _svg(draw: Callable[[Any], None], name: str) -> str:
    """A figure as an SVG element whose ids clash with no other's."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure = Figure(figsize=(7, 3.4))
        axes = figure.subplots()
        draw(axes)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
        content = io.StringIO()
        figure.savefig(
            content, format="svg", bbox_inches="tight", metadata={"Date": None}
        )
    element = content.getvalue()
    element = element[element.index("<svg") :]
    element = re.sub(r"<metadata>.*?</metadata>", "", element, flags=re.S)
    return re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}_", element)


# HTML -------------------------------------------------------------------------------


def _tag(name: str, content: str, *, kind: str | None = None) -> str:
    """An element; text is escaped, and what has a `kind` is markup already."""
    if kind is None:
        return f"<{name}>{html.escape(content)}</{name}>"
    return f'<{name} class="{kind}">{content}</{name}>'


def _list(items: Sequence[str]) -> str:
    return "<ul>" + "".join(_tag("li", item) for item in items) + "</ul>"


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(_tag("th", str(name)) for name in names)
    body = "".join(
        "<tr>" + "".join(_tag("td", _word(row.get(n, ""))) for n in names) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _word(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value)
