"""Plain English, as far as a program can tell: short summaries, short sentences, plain openings, no words of our own.

It reads the documentation comments of *.rs files and all *.md files. Code, addresses and markup do not count as words.
ci/prose-allowance.toml says how many findings each crate still has; the numbers may only fall.
"""

import re
import tomllib
from dataclasses import dataclass
from pathlib import PurePosixPath

MOST_IN_SUMMARY = 20
MOST_IN_SENTENCE = 30
OPENINGS = {"what", "who", "that", "whoever", "whose"}
BANNED = re.compile(r"\b(?:whoever|nobody|somebody|of whom|anew)\b", re.I)
ALLOWANCE = "ci/prose-allowance.toml"
# Its older entries say what was true then.
UNREAD = {"CHANGELOG.md"}
# A full stop after these ends no sentence.
ABBREVIATIONS = {"e.g", "i.e", "cf", "vs", "al", "fig", "figs", "sec", "no", "approx", "resp", "p", "pp", "ca"}

RUST_TOKEN = re.compile(
    r"""(?P<line>//[^\n]*)|(?P<block>/\*)|(?P<raw>\bb?c?r(?P<hashes>\#*)")|(?P<string>"(?:[^"\\]|\\.)*")
      |(?P<char>'(?:[^'\\\n]|\\(?:u\{[^}]*\}|x[0-9a-fA-F]{2}|.))')""",
    re.X | re.S,
)


@dataclass(frozen=True)
class Finding:
    path: str
    line: int
    text: str

    @property
    def place(self):
        return f"{self.path}:{self.line}"


def rust_blocks(text):
    """Documentation comments, each as a list of (line number, text without its marker)."""
    blocks, at, number, counted = [], 0, 1, 0
    previous = None  # line and marker of the comment before
    while match := RUST_TOKEN.search(text, at):
        at = match.end()
        number += text.count("\n", counted, match.start())
        counted = match.start()
        if match["block"]:
            depth, edge = 1, re.compile(r"/\*|\*/")
            while depth and (end := edge.search(text, at)):
                depth += 1 if end[0] == "/*" else -1
                at = end.end()
            at = len(text) if depth else at
            body = text[match.end() : at - 2]
            if re.match(r"[*!](?![*/])", body):
                lines = [re.sub(r"^\s*\*? ?", "", line) for line in body[1:].split("\n")]
                blocks.append(list(enumerate(lines, number)))
        elif match["raw"]:
            close = text.find('"' + match["hashes"], at)
            at = len(text) if close < 0 else close + 1 + len(match["hashes"])
        elif match["line"] and re.match(r"///(?!/)|//!", match["line"]):
            marker, line = match["line"][:3], match["line"][3:].removeprefix(" ")
            if previous == (number - 1, marker):
                blocks[-1].append((number, line))
            else:
                blocks.append([(number, line)])
            previous = (number, marker)
    return blocks


def paragraphs(lines):
    """Splits Markdown into (kind, first line, text); kind is `text`, `item`, `heading` or `cell`.

    A text's newlines are those of the file, so that the line of each word can be told.
    """
    found, current, fence, comment = [], None, None, False

    def close():
        nonlocal current
        if current:
            found.append((current[0], current[1], "\n".join(current[2])))
        current = None

    blank_before = True
    for number, line in lines:
        bare = re.sub(r"^(?:\s*>)+ ?", "", line)
        stripped = bare.strip()
        if fence:
            if re.fullmatch(re.escape(fence[0]) + r"{" + str(len(fence)) + r",}", stripped):
                fence = None
            continue
        if comment or stripped.startswith("<!--"):
            comment = "-->" not in stripped
            close()
            continue
        if opening := re.match(r"(`{3,}|~{3,})(?!.*`)", stripped):
            close()
            fence = opening[1]
            continue
        # Four spaces after an empty line are code, but for the second paragraph of a list's item.
        if blank_before and re.match(r"(?: {4}|\t)", bare) and not (found and found[-1][0] == "item"):
            continue
        blank_before = not stripped
        if not stripped or re.fullmatch(r"[-=*_]{3,}", stripped) or re.match(r"\[[^\]]+\]:\s", stripped):
            close()
        elif stripped.startswith("#") and re.match(r"#{1,6}\s", stripped):
            close()
            found.append(("heading", number, stripped.lstrip("# ")))
        elif stripped.startswith("|"):
            close()
            if not re.fullmatch(r"[|:\- ]+", stripped):
                cells = re.split(r"(?<!\\)\|", re.sub(r"`[^`]*`", lambda code: code[0].replace("|", " "), stripped))
                found.extend(("cell", number, cell.strip()) for cell in cells if cell.strip())
        elif item := re.match(r"(?:[-*+]|\d{1,3}[.)])\s+(.*)", stripped):
            close()
            current = ("item", number, [item[1]])
        elif current:
            current[2].append(stripped)
        else:
            current = ("text", number, [stripped])
    close()
    return found


def kept_lines(word):
    """A replacement that has as many line ends as what it replaces."""
    return lambda match: word(match) + "\n" * (match[0].count("\n") - word(match).count("\n"))


def plain(text):
    """Markdown without its markup: code and addresses are one word each, links are their text."""
    text = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", kept_lines(lambda _: "code"), text, flags=re.S)
    text = re.sub(r"!?\[([^\[\]]*)\]\([^()\s]*(?:\s+\"[^\"]*\")?\)", kept_lines(lambda m: m[1]), text)
    text = re.sub(r"!?\[([^\[\]]*)\]\[[^\[\]]*\]", kept_lines(lambda m: m[1]), text)
    text = re.sub(r"<?\bhttps?://[^\s>]*[^\s>.,;:)]>?", kept_lines(lambda _: "address"), text)
    text = re.sub(r"</?[a-zA-Z][^<>]*>", kept_lines(lambda _: ""), text)
    return re.sub(r"[\[\]*]|(?<!\w)_+|_+(?!\w)", "", text)


def sentences(text, first):
    """The sentences of a plain text, each as (line, words)."""
    sentence, line = [], first
    for part in re.split(r"(\s+)", text):
        if part.isspace() or not part:
            line += part.count("\n")
            continue
        if re.search(r"\w", part):
            sentence.append((line, part))
        if not (end := re.search(r"[.!?…][\"')”’]*$", part)) or not sentence:
            continue
        word = part[: end.start()].lstrip("(\"'“‘").lower()
        stop = part[end.start()] == "."
        if stop and (word in ABBREVIATIONS or re.fullmatch(r"[a-z]", word)) or part[end.start()] == "…":
            continue
        yield sentence
        sentence = []
    if sentence:
        yield sentence


def shown(words):
    text = " ".join(word for _, word in words)
    return text if len(text) <= 90 else text[:87] + "…"


def opening(words):
    return re.sub(r"[^\w].*", "", words[0][1].lstrip("(\"'“‘")).lower()


def read_block(path, lines, is_item):
    """The findings of one documentation comment, or of one Markdown file."""
    for index, (kind, first, markdown) in enumerate(paragraphs(lines)):
        text = plain(markdown)
        for match in BANNED.finditer(re.sub(r"\s", " ", text)):
            line = first + text.count("\n", 0, match.start())
            yield Finding(path, line, f"`{match[0].lower()}`: name the subject in plain words")
        said = list(sentences(text, first))
        if not said:
            continue
        opens = index == 0 if is_item else kind != "cell"
        if opens and opening(said[0]) in OPENINGS:
            yield Finding(path, said[0][0][0], f"opens with `{said[0][0][1]}`; begin with the subject: {shown(said[0])}")
        words = [word for sentence in said for word in sentence]
        if is_item and index == 0 and kind == "text" and len(words) > MOST_IN_SUMMARY:
            yield Finding(path, first, f"a summary of {len(words)} words; at most {MOST_IN_SUMMARY}: {shown(words)}")
        for sentence in said if kind != "heading" else ():
            if len(sentence) > MOST_IN_SENTENCE:
                text_of = f"a sentence of {len(sentence)} words; at most {MOST_IN_SENTENCE}: {shown(sentence)}"
                yield Finding(path, sentence[0][0], text_of)


def read(files):
    """All findings in these files (text by path), in order."""
    for path, text in sorted(files.items()):
        if path.endswith(".rs"):
            for block in rust_blocks(text):
                yield from read_block(path, block, True)
        elif path.endswith(".md") and path not in UNREAD:
            yield from read_block(path, list(enumerate(text.split("\n"), 1)), False)


def area(path):
    """The crate or folder whose allowance a file's findings count towards."""
    parts = PurePosixPath(path).parts
    if len(parts) == 1:
        return path
    return "/".join(parts[:2]) if parts[0] in ("crates", "examples") and len(parts) > 2 else parts[0]


def by_area(findings):
    counted = {}
    for finding in findings:
        counted.setdefault(area(finding.path), []).append(finding)
    return counted


def allowed(files):
    return tomllib.loads(files.get(ALLOWANCE, ""))


def over(files):
    """Findings of every area that has more than its allowance, and notes on those that have fewer."""
    counted, allowance = by_area(read(files)), allowed(files)
    too_many, notes = [], []
    for name in sorted(counted.keys() | allowance.keys()):
        found, limit = counted.get(name, []), allowance.get(name, 0)
        if len(found) > limit:
            if limit:
                too_many.append((ALLOWANCE, f"{name} has {len(found)} findings, allowed {limit}: `ci/gates --prose {name}` lists them"))
            else:
                too_many.extend((finding.place, finding.text) for finding in found)
        elif len(found) < limit:
            notes.append(f"{name} has {len(found)} findings, allowed {limit}: `ci/gates --lower` lowers its allowance")
    return too_many, notes


def lowered(files):
    """The allowance file with every number that is too high lowered; none is ever raised."""
    counted, allowance = by_area(read(files)), allowed(files)
    least = {name: min(limit, len(counted.get(name, []))) for name, limit in allowance.items()}
    head = "".join(f"{line}\n" for line in files.get(ALLOWANCE, "").split("\n") if line.startswith("#"))
    return head + "".join(f'"{name}" = {number}\n' for name, number in sorted(least.items()) if number)
