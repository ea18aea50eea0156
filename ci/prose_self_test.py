"""Shows the reader of English what is plain and what is not."""

import prose

TWENTY = " ".join(["word"] * 20)
THIRTY = " ".join(["word"] * 30)

# Path, text, and the findings: each a line and the first words of what is said there.
CASES = [
    # Summaries: at most 20 words, up to the first empty line.
    ("a.rs", f"/// {TWENTY}.\nfn a() {{}}\n", []),
    ("a.rs", f"/// {TWENTY} more.\nfn a() {{}}\n", [(1, "a summary of 21")]),
    ("a.rs", "/// Ten words here, which is one half of the limit.\n/// Ten more in a sentence of their own, plus one too.\nfn a() {}\n",
     [(1, "a summary of 21")]),
    ("a.rs", f"/// Short.\n///\n/// {TWENTY} more.\nfn a() {{}}\n", []),
    ("a.rs", f"//! Short.\n\n/// {TWENTY}.\nfn a() {{}}\n", []),
    ("a.rs", f"\nfn a() {{\n    //! {TWENTY} more.\n}}\n", [(3, "a summary of 21")]),
    ("a.rs", f"/** {TWENTY} more. */\nfn a() {{}}\n", [(1, "a summary of 21")]),
    # No documentation: ordinary comments, four slashes, text in literals.
    ("a.rs", f"// {TWENTY} more.\n//// What is it?\n/* What */\n", []),
    ("a.rs", f'let a = "\n/// What is {TWENTY}";\nlet b = r#"\n//! Who "says"\n"#;\n', []),
    ("a.rs", "let a = '\"'; /// What it is.\nlet b = '\"';\n", [(1, "opens with `What`")]),
    # Sentences: at most 30 words, wherever they stand.
    ("a.rs", f"/// Short.\n///\n/// {THIRTY}.\nfn a() {{}}\n", []),
    ("a.rs", f"/// Short.\n///\n/// First.\n/// Then {THIRTY}.\nfn a() {{}}\n", [(4, "a sentence of 31")]),
    ("a.md", f"{THIRTY}. {THIRTY}! {THIRTY}? ({THIRTY}.) \"{THIRTY}.\" {THIRTY}.\n", []),
    ("a.md", f"word {THIRTY}.\n", [(1, "a sentence of 31")]),
    ("a.md", f"{THIRTY}; more.\n", [(1, "a sentence of 31")]),
    ("a.md", f"- word\n  {THIRTY}\n- word {THIRTY}\n", [(1, "a sentence of 31"), (3, "a sentence of 31")]),
    ("a.md", f"1. {THIRTY}\n2. {THIRTY}\n", []),
    ("a.md", f"> {THIRTY}\n>\n> {THIRTY}\n", []),
    # Abbreviations and numbers end no sentence; a section's number before a capital does.
    ("a.md", f"word, e.g. {THIRTY}.\n", [(1, "a sentence of 32")]),
    ("a.md", f"(i.e. {THIRTY}.)\n", [(1, "a sentence of 31")]),
    ("a.md", f"version 1.95 {THIRTY[5:]}.\n", [(1, "a sentence of 31")]),
    ("a.md", f"It follows RFC 793. {THIRTY}.\n", []),
    ("a.md", f"{THIRTY[5:]} etc. {THIRTY}.\n", []),
    # Dashes and signs are no words; what is code, a link's address or markup is not read.
    ("a.md", f"{THIRTY[5:]} – = + one.\n", []),
    ("a.md", f"{THIRTY[10:]} `a b c d e` **one**.\n", []),
    ("a.md", f"{THIRTY[10:]} [one](https://a.example/a.b?c%20d) [two](x.md \"a title of five words\").\n", []),
    ("a.md", f"{THIRTY[5:]} <https://a.example/What. Who.>\n", []),
    ("a.md", "A call of `a\nwhoever b` ends.\n\nnobody\n", [(4, "`nobody`")]),
    # Blocks that are no prose.
    ("a.md", f"```rust\nWhat {THIRTY}\nnobody\n```\n\n~~~\n```\nWho\n~~~\n", []),
    ("a.md", f"````\n```\nWhat {THIRTY}\n````\nWhat\n", [(5, "opens with `What`")]),
    ("a.md", f"Text.\n\n    What {THIRTY}\n\nText.\n", []),
    ("a.md", f"<!-- What {THIRTY}\nnobody -->\nText.\n", []),
    ("a.rs", "/// Adds.\n///\n/// ```\n/// // What nobody reads.\n/// ```\nfn a() {}\n", []),
    ("a.md", f"| a | b |\n|---|---|\n| {THIRTY} | {THIRTY} |\n| {THIRTY} word | x |\n", [(4, "a sentence of 31")]),
    ("a.md", "| what | `a|b` |\n|:--|--:|\n| who | 1 |\n", []),
    ("a.md", f"[a]: https://a.example/what\n# {THIRTY} word\n---\n", []),
    # Openings.
    *(("a.rs", f"/// {word} it is.\nfn a() {{}}\n", [(1, f"opens with `{word}`")]) for word in ("What", "Who", "That", "Whose")),
    ("a.rs", "/// Whoever reads.\nfn a() {}\n", [(1, "`whoever`"), (1, "opens with `Whoever`")]),
    ("a.rs", "/// Whether it is.\n///\n/// What follows is free.\nfn a() {}\n", []),
    ("a.rs", "/// (What it is.)\nfn a() {}\n", [(1, "opens with `(What`")]),
    ("a.rs", "/// What's here.\nfn a() {}\n", [(1, "opens with `What's`")]),
    ("a.md", "# What holds\n\n- That one.\n- This one. That one.\n", [(1, "opens with `What`"), (3, "opens with `That`")]),
    # Words.
    ("a.md", "It counts anew,\nand somebody, of\nwhom we know.\n", [(1, "`anew`"), (2, "`somebody`"), (2, "`of whom`")]),
    ("a.md", "Somebodys and anewly are other words.\n", []),
    # Files that are not read.
    ("CHANGELOG.md", "What nobody\n", []),
    ("a.toml", "# What nobody\n", []),
]


def allowances():
    """The allowance is read by area, is exceeded by area, and only ever falls."""
    bad = "/// What.\nfn a() {}\n"
    files = {
        "crates/a/src/lib.rs": bad, "crates/b/src/lib.rs": bad, "examples/c/README.md": "What\n", "README.md": "",
        prose.ALLOWANCE: '# Head.\n"README.md" = 2\n"crates/a" = 1\n"crates/b" = 3\n"examples/c" = 0\n',
    }
    too_many, notes = prose.over(files)
    yield "exceeded", too_many == [("examples/c/README.md:1", "opens with `What`; begin with the subject: What")]
    yield "notes", [note.split()[0] for note in notes] == ["README.md", "crates/b"]
    yield "lowered", prose.lowered(files) == '# Head.\n"crates/a" = 1\n"crates/b" = 1\n'
    files["crates/a/src/lib.rs"] = bad * 2
    yield "never raised", '"crates/a" = 1\n' in prose.lowered(files)
    yield "over", (prose.ALLOWANCE, "crates/a has 2 findings, allowed 1: `ci/gates --prose crates/a` lists them") in prose.over(files)[0]


def main():
    failed = 0
    for path, text, expected in CASES:
        found = [(finding.line, finding.text) for finding in prose.read({path: text})]
        if len(found) != len(expected) or any(f[0] != e[0] or not f[1].startswith(e[1]) for f, e in zip(found, expected)):
            failed += 1
            print(f"prose: {text!r}: expected {expected}, got {found}")
    tried = list(allowances())
    for name, holds in tried:
        if not holds:
            failed += 1
            print(f"prose: the allowance is wrong: {name}")
    return len(CASES) + len(tried), failed
