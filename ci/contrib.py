"""Files in contrib/: they load, and each metric that they name is one of crates/control/src/metrics.rs.

Python has no reader of YAML, so this one reads the part of it in which alerts.yml is written: mappings and lists by
indentation, plain and quoted scalars, and `|` blocks.
"""

import json
import re

FOLDER = "contrib/"
METRICS = "crates/control/src/metrics.rs"
ALERTS = FOLDER + "prometheus/alerts.yml"
DASHBOARD = FOLDER + "grafana/netbricks.json"
METRIC = re.compile(r"(?<![\w.])netbricks_[a-z_]+")
# A family's name in the source, and its kind where that stands beside it.
FAMILY = re.compile(r'\(\s*(?:Kind::(?P<kind>Counter|Gauge),\s*)?"(?P<name>[a-z]+(?:_[a-z]+)*)",')
ENDINGS = {"Gauge": ("",), "Counter": ("_total",), None: ("", "_total", "_packets_total", "_bytes_total")}
OLDEST_SCHEMA = 39
RULE_KEYS = {"alert", "expr", "for", "labels", "annotations"}


class Unreadable(Exception):
    """A line that is not in the part of YAML that this reads."""

    def __init__(self, line, problem):
        super().__init__(problem)
        self.line = line


def metrics(source):
    """The names that the source gives to metrics, and some more: a name whose kind is elsewhere counts as each."""
    return {
        f"netbricks_{match['name']}{ending}"
        for match in FAMILY.finditer(source.split("#[cfg(test)]")[0])
        for ending in ENDINGS[match["kind"]]
    }


def read_yaml(text):
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if not re.match(r"\s*(#.*)?$", line)]
    value, rest = block(lines, 0)
    if rest:
        raise Unreadable(rest[0][0], "its indentation fits nothing above it")
    return value


def indentation(line):
    return len(line) - len(line.lstrip(" "))


def block(lines, least):
    """The mapping or list that begins here, and the lines behind it."""
    if not lines or (indent := indentation(lines[0][1])) < least:
        return None, lines
    is_list = lines[0][1].lstrip().startswith("- ")
    value = [] if is_list else {}
    while lines and indentation(lines[0][1]) == indent:
        number, line = lines[0]
        if is_list:
            if not line.lstrip().startswith("- "):
                raise Unreadable(number, "expected an item of the list")
            # An item is a block that begins behind its dash.
            item, lines = block([(number, line.replace("- ", "  ", 1)), *lines[1:]], indent + 1)
            value.append(item)
            continue
        if not (match := re.match(r"\s*([A-Za-z_]+):(?: (.*))?$", line)):
            raise Unreadable(number, "expected `key: value`")
        key, text = match[1], (match[2] or "").strip()
        if key in value:
            raise Unreadable(number, f"`{key}` comes twice")
        lines = lines[1:]
        if text == "|":
            taken = []
            while lines and indentation(lines[0][1]) > indent:
                taken.append(lines[0][1].strip())
                lines = lines[1:]
            value[key] = "\n".join(taken)
        elif text:
            value[key] = scalar(number, text)
        else:
            value[key], lines = block(lines, indent + 1)
    return value, lines


def scalar(number, text):
    if text[0] == '"':
        try:
            return json.loads(text)
        except ValueError:
            raise Unreadable(number, "the quoted text does not end, or has an escape that JSON has not") from None
    if text[0] in "'[{&*!%@`|>" or ": " in text or " #" in text:
        raise Unreadable(number, "quote this text by `\"`")
    return text


def rules(text):
    """Faults of alert rules, as (line, problem)."""
    try:
        groups = (read_yaml(text) or {}).get("groups") or []
    except Unreadable as fault:
        yield fault.line, str(fault)
        return
    found = [rule for group in groups for rule in group.get("rules") or []]
    if not found:
        yield 1, "there is no rule"
    for rule in found:
        name = rule.get("alert", "")
        line = 1 + text.split(f"alert: {name}\n")[0].count("\n")
        if missing := {"alert", "expr", "labels", "annotations"} - rule.keys():
            yield line, f"a rule without `{min(missing)}`"
        elif "severity" not in rule["labels"] or {"summary", "description"} - rule["annotations"].keys():
            yield line, f"`{name}` needs `severity`, `summary` and `description`"
        if odd := rule.keys() - RULE_KEYS:
            yield line, f"`{min(odd)}` is no key of a rule"


def dashboard(text):
    """Faults of the dashboard, as (line, problem)."""
    try:
        content = json.loads(text)
    except ValueError as fault:
        yield getattr(fault, "lineno", 1), str(fault)
        return
    if not content.get("uid") or content.get("schemaVersion", 0) < OLDEST_SCHEMA:
        yield 1, f"it needs a `uid`, and a `schemaVersion` of at least {OLDEST_SCHEMA}"
    if not any(variable.get("type") == "datasource" for variable in content.get("templating", {}).get("list", [])):
        yield 1, "it has no variable for the data source"
    panels = content.get("panels", [])
    if len({panel.get("id") for panel in panels}) != len(panels):
        yield 1, "two panels have one id"
    for panel in panels:
        if panel.get("type") != "row" and not all(target.get("expr") for target in panel.get("targets") or [{}]):
            yield 1, f"the panel `{panel.get('title')}` has no expression"


def findings(files):
    """Faults of the files in contrib/, as (place, problem)."""
    for path, read in ((ALERTS, rules), (DASHBOARD, dashboard)):
        if path in files:
            yield from ((f"{path}:{line}", problem) for line, problem in read(files[path]))
    known = metrics(files.get(METRICS, ""))
    for path, text in files.items():
        if not path.startswith(FOLDER):
            continue
        for number, line in enumerate(text.split("\n"), 1):
            for name in METRIC.findall(line):
                if name not in known:
                    yield f"{path}:{number}", f"`{name}` is no metric of {METRICS}"
