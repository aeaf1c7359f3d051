"""Measures of the English in doc comments and documents, and the budget that keeps them from rising.

    python3 scripts/english.py             prints the table, in total and for each crate
    python3 scripts/english.py --list ir   prints each mark of a crate (or of `documents`): file, line, text
    python3 scripts/english.py --check     compares with scripts/english-budget.txt, as the test `english` does
    python3 scripts/english.py --lower     lowers the numbers of that file; it raises none

Rules of counting:

- A doc comment is a run of lines that begin with `///` or `//!`. Files are those in `src`, `tests`, `examples` and
  `benches` of each crate. Lines between fences (```) and text between backquotes are not counted.
- Opening: the doc comment begins with What, Of, The same, That of or One that.
- Pronoun: it begins with a pronoun that has no noun yet (It, Its, Those, ...), a question word (Who, Which, How, Why),
  Likewise, or an ellipsis.
- Words: words of the dialect, see WORDS below, also in the documents (all Markdown files but CHANGELOG.md).
- Plain comment: a line that begins with `//` and is not a doc comment, as a share of all lines.
- Marks are openings, pronouns and words together; the budget of a crate is its number of marks (none: 0).
"""

import collections
import glob
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUDGET = os.path.join(ROOT, "scripts", "english-budget.txt")
OPENING = re.compile(r"(What|Of|The same|That of|One that)\b")
PRONOUN = re.compile(r"(It|Its|They|Them|Their|Those|These|That|Who|Whose|Which|How|Why|Likewise)\b|\.\.\.|…")
WORDS = {
    "told": re.compile(r"\b(told|tells?)\b", re.I),
    "stands": re.compile(r"\b(stands?|stood|lies)\b", re.I),
    "beside": re.compile(r"\b(besides?|anew|whoever)\b", re.I),
    "is no": re.compile(r"(?<!there )\b(is|are) no\b(?! (longer|more)\b)", re.I),
    "what it": re.compile(r"\b(what it|the same of)\b", re.I),
}
Mark = collections.namedtuple("Mark", "kind path line text")


class Count:
    """Sums of a crate."""

    def __init__(self):
        self.lines = self.plain = self.comments = self.words = 0
        self.marks = []

    def add(self, other):
        for name in ("lines", "plain", "comments", "words", "marks"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def of(self, kind):
        return sum(mark.kind == kind for mark in self.marks)


def doc_comments(lines):
    """Yields (number of the first line, lines of text) for each doc comment."""
    block, start, kind = [], 0, ""
    for number, line in enumerate(lines + [""], 1):
        text = line.strip()
        this = text[:3] if re.match(r"//[/!](?!/)", text) else ""
        if block and this != kind:
            yield start, block
            block = []
        if this:
            start = start if block else number
            block.append(text[3:])
        kind = this


def prose(lines, first):
    """Yields (number, text) for each line outside of fences, without code in backquotes."""
    fenced = False
    for number, line in enumerate(lines, first):
        if line.strip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, re.sub(r"`[^`]*`", "`", line)


def add_words(count, path, lines):
    for number, text in lines:
        count.words += len(re.findall(r"[A-Za-z0-9`][\w'`-]*", text))
        for name, pattern in WORDS.items():
            count.marks += [Mark(name, path, number, text.strip()) for _ in pattern.finditer(text)]


def count_rust(path):
    count = Count()
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    name = os.path.relpath(path, ROOT)
    count.lines = len(lines)
    count.plain = sum(bool(re.match(r"\s*//(?![/!])", line)) for line in lines)
    for first, block in doc_comments(lines):
        count.comments += 1
        text = block[0].strip()
        if OPENING.match(text):
            count.marks.append(Mark("opening", name, first, text))
        elif PRONOUN.match(text):
            count.marks.append(Mark("pronoun", name, first, text))
        add_words(count, name, prose(block, first))
    return count


def count_documents():
    count = Count()
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md"):
        for path in sorted(glob.glob(os.path.join(ROOT, pattern), recursive=True)):
            # Texts of releases stay; pages of docs/reference are texts of the program.
            if os.path.basename(path) == "CHANGELOG.md" or "/docs/reference/" in path:
                continue
            with open(path, encoding="utf-8") as file:
                lines = file.read().splitlines()
            count.lines += len(lines)
            # An indented line is code.
            text = [(number, line) for number, line in prose(lines, 1) if not line.startswith("    ")]
            add_words(count, os.path.relpath(path, ROOT), text)
    return count


def count_all():
    counts = {}
    for manifest in sorted(glob.glob(os.path.join(ROOT, "crates", "*", "*", "Cargo.toml"))):
        folder = os.path.dirname(manifest)
        count = Count()
        for part in ("src", "tests", "examples", "benches"):
            for path in sorted(glob.glob(os.path.join(folder, part, "**", "*.rs"), recursive=True)):
                count.add(count_rust(path))
        counts[os.path.basename(folder)] = count
    counts["documents"] = count_documents()
    return counts


def row(name, count):
    def share(part, whole):
        return f"{100 * part / whole:.1f}" if whole else "-"

    words = [f"{10_000 * count.of(kind) / count.words:.1f}" if count.words else "-" for kind in WORDS]
    per_comment = f"{count.words / count.comments:.1f}" if count.comments else "-"
    cells = [count.comments, share(count.of("opening"), count.comments), share(count.of("pronoun"), count.comments)]
    cells += words + [per_comment, share(count.plain, count.lines), len(count.marks)]
    return f"| {name:<10} | " + " | ".join(f"{cell:>7}" for cell in cells) + " |"


def print_table(counts):
    heads = ["docs", "open %", "pron. %", *WORDS, "w/doc", "plain %", "marks"]
    print("Doc comments; openings and pronouns in percent; words in 10,000 words; words a comment; plain comments.\n")
    print(f"| {'crate':<10} | " + " | ".join(f"{head:>7}" for head in heads) + " |")
    print("|" + "-" * 12 + ("|" + "-" * 8 + ":") * len(heads) + "|")
    total = Count()
    for name, count in counts.items():
        if name != "documents":
            total.add(count)
    print(row("all crates", total))
    for name, count in counts.items():
        print(row(name, count))
    log = subprocess.run(["git", "-C", ROOT, "log", "--format=%b%x00"], capture_output=True, text=True, check=False)
    bodies = log.stdout.split("\0")[:-1]
    if bodies:
        with_body = sum(bool(body.strip()) for body in bodies)
        print(f"\nCommits with a body: {with_body} of {len(bodies)}, {100 * with_body / len(bodies):.1f} %")


def read_budget():
    with open(BUDGET, encoding="utf-8") as file:
        pairs = [line.split() for line in file if line.strip() and not line.startswith("#")]
    return {name: int(number) for name, number in pairs}


def write_budget(budget):
    head = "# Marks that scripts/english.py counts in each crate. The numbers only fall: python3 scripts/english.py --lower\n"
    with open(BUDGET, "w", encoding="utf-8") as file:
        file.write(head + "".join(f"{name} {number}\n" for name, number in sorted(budget.items())))


def check(counts):
    budget = read_budget()
    faults = []
    for name, count in counts.items():
        have, may = len(count.marks), budget.get(name, 0)
        if have > may:
            faults.append(f"{name}: {have} marks, budget {may}: rewrite the new ones "
                          f"(python3 scripts/english.py --list {name})")
        elif have < may:
            faults.append(f"{name}: {have} marks, budget {may}: lower the number (python3 scripts/english.py --lower)")
    return faults


def main():
    words = sys.argv[1:]
    counts = count_all()
    if not words:
        print_table(counts)
    elif words[0] == "--list" and len(words) == 2 and words[1] in counts:
        for mark in counts[words[1]].marks:
            print(f"{mark.path}:{mark.line}: {mark.kind}: {mark.text}")
    elif words == ["--check"]:
        faults = check(counts)
        print("\n".join(faults), end="\n" if faults else "")
        return 1 if faults else 0
    elif words == ["--lower"]:
        budget = read_budget()
        write_budget({name: min(number, len(counts[name].marks)) for name, number in budget.items() if name in counts})
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
