"""The language rules of STYLE.md, checked on docstrings, comments and names.

`python -m tests.meta.language rmq/store` prints what breaks a rule below a folder.
A page of docs, a Python module, a compiled module, a stub and a script are read.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.meta.markdown import paragraphs_of

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
    ROOT / "examples/README.md",
]
"""All pages for people, except the news fragments."""

ROOMS = "rmq", "plugins", "spark"
"""The folders of the product."""

WORD_LIMIT = 25

BANNED = {
    r"\banew\b": "again",
    r"\bsays?\b(?! so\b)": "name the act: return, report, define, state",
    r"\bsaid\b": "reported",
    r"\btells?\b": "notify, report, return, show",
    r"\btold\b": "notified, reported",
    r"\bnot(?:es|ed)\b(?! for\b)": "record, remember",
    r"\bstands? (?:for|in|at|behind|on|here|there)\b": "is, represents",
    r"\bbehind (?:the|it|a|an|that|them|its|which)\b": "after (order); lags (distance)",
    r"(?<!there )\b(?:is|are|was|were|has|have|had) none\b": "there is no …",
    r"\bnobody\b": "no thread, no client: name the actor",
    r"\bwhoever\b": "name the actor",
    r"\bwhom\b": "name the actor",
    r"\bbeside\b": "together with, in addition to, next to",
    r"\bvouch\w*\b": "verify",
    r"\bdear(?:er)?\b": "expensive",
    r"\bin hand\b": "in flight",
    r"\b(?:for|than) so (?:long|many|much)\b": "name the quantity, or: this long",
    r"\b(?:stop|stops|stopped|ends?|ended|left) in order\b": "clean shutdown",
    r"\b(?:go|goes|went) on\b": "continue, begin to",
    r"\bsets? (?:it|them) aside\b": "move to aside/",
    r"\b(?:is|are|was|were|be) set aside\b": "move to aside/",
    r"^Least [a-z]": "minimum",
    r"^Most (?:(?:\w+ ){1,2}(?:of|that|whose|which|in)\b|\w+(?: \w+)?[;:.])": "maximum",
    r"\bso (?:long|many|often)(?=\s*(?:[.:;,)]|$))": "name the quantity, or: this long",
    r"\b(?:before|so that) others\b": "name the others: other tasks, other queues",
    r"\bNone (?:reads|makes|uses|signs|takes|sets|sends|is for)\b": "without it …",
    r"\b(?:orderly stop|(?:shuts?|stops?|stopped|ends?) in order)\b": "clean shutdown",
    r"\bthe present (?:one|group|file|boot|table|state|slot)\b": "current",
    r"\bthe least (?:time|id|offset|age)\b": "minimum, smallest",
    r"^See above\b": "what it is, in words of its own",
    r"\bpass(?:es|ed) over\b": "skip",
}
"""Words of private English and what to write instead, as patterns."""

CLAUSE_FIRST = re.compile(r"^(?:What|Who|Whom|Whose|Whoever|Whatever|Of) ")
"""A sentence that begins with a clause, or with the possessor."""

ONE_WORD = frozenset(
    """
    abort accept ack acknowledge acquire add address admit advance align all allocate
    allows append apply arm around arrivals assemble assign assignment attach attempt
    authenticate authorize batches begin bind brokers build call campaign cancel
    capacity choose clean clear clip clone close collect column columns command commit
    committed compact compare compile complete compress config configs confirm connect
    connection consume contains content context copy cost count counts create decide
    decline decode decompress decorated delete deliver deliveries describe detach digest
    discard dispatch divide drain drop dump duration elect emit encode encrypt end
    enqueue ensure enter epoch error escape evict exception exchange exists expand
    expire explain export expose extend facts fail families fence fetch fields fileno
    files fill filter find finish fits flag flush folder follow format freeze get greet
    group groups grow guard handle handler handlers hash header heal health heartbeat
    hide hint host identity index inflate info insert inspect interceptor invalid invoke
    isolate items iterate join keep key keys kill lag language length level limit limits
    lines link listen load lock log lookup lower main make map mark masters match
    matches measure members memory merge message messages metadata metrics missing move
    nack name names native next notify observe offer offset offsets oneway open optimize
    option options order overview pack page pairs parent parse path pause peek pending
    perform pin plan plugins poll pop position positions post prefetch prepare print
    problems properties prune publish pull purge push put pwrite query queue queues rank
    rate ratio read readable readiness ready reap rebuild recall receive reconnect
    record recover redirect refresh refuse register reject release reload remark remove
    rename renew repair replace reply report request requeue require reserve reset
    resolve resource respond restore result resume retry revive revoke rewind rewrite
    roll rollback route rows run sample save scan schema search seek select send serve
    service set settle share shutdown sign size skip sleep snapshot spawn split stage
    start statistics status step stop store subscribe subscription suspend swap sweep
    sync table tables tail target text tick time topic topics touch trace transaction
    translate trigger truncate try type unescape unlink unlock unpack unquote unregister
    unsubscribe unwrap update user users vacuum validate value values verify version
    versions view visible wait wake walk watch withdraw wrap write zero
    """.split()  # noqa: SIM905 - a list of words
)
"""Verbs and nouns that are clear alone; other functions have two words or more."""

NOT_NOUNS = re.compile(
    r"\w+(?:ed|ing)|kept|told|made|given|taken|held|known|shown|found|sent|written|gone"
    r"|after|again|ahead|alone|already|among|apart|around|away|back|before|behind|below"
    r"|beside|between|beyond|down|ever|forward|here|how|later|now|off|on|once|only|out"
    r"|over|soon|then|there|through|together|under|until|up|when|where|with|within"
    r"|without"
)
"""Participles, adverbs and prepositions: no names, also not of properties."""

POSITIONS = frozenset("appended written replicated acknowledged".split())  # noqa: SIM905
"""Positions of one log, which `rmq/store/positions.py` defines."""

FOREIGN = frozenset(
    """
    aclose children exit feed formatException formatMessage getDefaultReadLimit healthz
    initialOffset invoke kick latestOffset partitions prepareForTriggerAvailableNow
    pushFilters readinto reader reportLatestOffset seekable startup streamReader
    streamWriter writable writer scanner tell sql done derive murmur3 crc32 fnv1a utf8
    cell
    """.split()  # noqa: SIM905 - a list of words
)
"""Names that a library or a format prescribes."""

BANNED_NAME = re.compile(
    r"_*(?:note|say)_\w+|\w*(?<![^\W_])(?:tells?|told|said|anew|whom)(?![^\W_])\w*"
)
"""Functions and variables with a word of private English; a `note` is a noun."""

FUNCTION = re.compile(
    r"^\s*(?:async )?(?:def|cpdef|cdef)\s+(?:inline\s+|public\s+|readonly\s+)*"
    r"(?:[\w.\[\]:, *]+?[ *]+)?(\w+)\((?![^()]*\)\s*$)",
    re.MULTILINE,
)
SKIPPED = re.compile(r"^\s*(?:[|+]|>>>|\$ |\.\. |```|rmq |make |#!)")
COLUMNS = re.compile(r"[^\s.:;!?] {2,}\S")
"""A row of aligned columns; two spaces after the end of a sentence are none."""

SENTENCE_END = re.compile(r"(?<=[.!?:;])(?=\s+(?:[A-Z0-9`\"(*\[]|rmq\b)|\s*$)")
CODE_LIST = re.compile(r"(?:`[^`]*`(?:,? |, (?:and|or) | (?:and|or) )){2,}`[^`]*`")
"""Names one after the other count as one word."""

CODE = re.compile(r"`[^`]*`|``[^`]*``|\"[^\"\n]*\"|https?://\S+")


class Problem(NamedTuple):
    """One break of one rule."""

    path: Path
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        path = self.path.relative_to(ROOT)
        return f"{path}:{self.line}: {self.rule}: {self.text[:160]}"


class Text(NamedTuple):
    """A text for readers, and the line where it begins."""

    line: int
    text: str
    is_docstring: bool = True


def texts_of(path: Path) -> Iterator[Text]:
    """Yield the docstrings and comments of a module."""
    source = path.read_text()
    if path.suffix in (".py", ".pyi"):
        yield from _docstrings(ast.parse(source))
        yield from _comments(source)
    else:
        for match in re.finditer(r'"""(.*?)"""', source, re.DOTALL):
            line = source.count("\n", 0, match.start()) + 1
            if source[: match.start()].rstrip().endswith("extern from *:"):
                for comment in re.finditer(r"/\*(.*?)\*/", match[1], re.DOTALL):
                    yield Text(line, comment[1], False)
            else:
                yield Text(line, match[1])
        block: list[str] = []
        first = 0
        for number, line in enumerate(source.splitlines(), 1):
            match = re.match(r"\s*#(?!:) ?(.*)", line)
            if match and not block:
                first = number
            if match:
                block.append(match[1])
            elif block:
                yield Text(first, "\n".join(block), False)
                block = []


def _docstrings(tree: ast.Module) -> Iterator[Text]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            text = node.value.value
            if isinstance(text, str):
                yield Text(node.lineno, text)


def _comments(source: str) -> Iterator[Text]:
    block: list[str] = []
    first = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        text = re.sub(r"^#:?\s?", "", token.string)
        if re.match(r"(noqa|type:|fmt:|tidy:|pragma)", text):
            continue
        if block and token.start[0] != last + 1:
            yield Text(first, "\n".join(block), False)
            block = []
        if not block:
            first = token.start[0]
        block.append(text)
        last = token.start[0]
    if block:
        yield Text(first, "\n".join(block), False)


OPTION = re.compile(r"\w+ \([^()]*(?:\([^()]*\)[^()]*)*(?:\): |$)")
"""The head of an option in `Args:`; its effect is a sentence of its own."""


def sentences_of(text: str) -> Iterator[str]:
    """Yield the sentences of a text, without code, tables and lists of values."""
    paragraphs: list[str] = [""]
    is_literal = False
    for line in text.splitlines():
        stripped = line.strip()
        if is_literal and (not stripped or line.startswith((" " * 8, "\t"))):
            continue
        is_literal = False
        if (
            not stripped
            or SKIPPED.match(line)
            or "·" in stripped
            or COLUMNS.search(stripped)
        ):
            paragraphs.append("")
            continue
        if re.match(r"(?:[*-]|\d+\.) ", stripped):
            paragraphs.append("")
            stripped = stripped.partition(" ")[2]
        elif stripped == "Args:" or OPTION.match(stripped):
            paragraphs.append("")
            stripped = OPTION.sub("", stripped)
        paragraphs[-1] += " " + stripped
        if stripped.endswith("::"):
            is_literal = True
            paragraphs.append("")
    for paragraph in paragraphs:
        yield from _split(paragraph)


def _split(paragraph: str) -> Iterator[str]:
    for sentence in SENTENCE_END.split(paragraph):
        if sentence.strip():
            yield sentence.strip()


VALUE_WITHOUT_NOUN = re.compile(r"(?:By|In|Of|From|At|On|For) [^,:;.]*\.?$")
"""A whole text of a few words that begins with a preposition: of which thing?"""


def problems_of_text(path: Path, text: Text) -> Iterator[Problem]:
    """Yield what is wrong with the sentences of one text."""
    whole = CODE.sub("x", text.text.strip())
    if (
        text.is_docstring
        and VALUE_WITHOUT_NOUN.match(whole)
        and len(whole.split()) < 10
    ):
        yield Problem(path, text.line, "a preposition without a noun", whole)
    for sentence in sentences_of(text.text):
        yield from _problems_of_sentence(path, text.line, sentence)


def problems_of_page(path: Path) -> Iterator[Problem]:
    """Yield what is wrong with the prose of a Markdown page."""
    for line, paragraph in paragraphs_of(path.read_text()):
        text = re.sub(r"\]\([^)]*\)", "]", paragraph)
        for sentence in _split(CODE_LIST.sub("`x`", text)):
            yield from _problems_of_sentence(path, line, sentence)


def _problems_of_sentence(path: Path, line: int, sentence: str) -> Iterator[Problem]:
    plain = CODE.sub("x", sentence)
    if len(plain.split()) > WORD_LIMIT:
        yield Problem(path, line, f"over {WORD_LIMIT} words", sentence)
    if CLAUSE_FIRST.match(plain) and not plain.endswith("?"):
        yield Problem(path, line, "begins with a clause", sentence)
    for pattern, instead in BANNED.items():
        if match := re.search(pattern, plain):
            rule = f"banned word {match[0]!r} ({instead})"
            yield Problem(path, line, rule, sentence)


def _assigned_name(node: ast.AST) -> str:
    """Return the name of a variable, attribute or parameter where it is defined."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return node.attr
    return node.arg if isinstance(node, ast.arg) else ""


def problems_of_names(path: Path) -> Iterator[Problem]:
    """Yield functions with one word that is not on the list; properties are nouns."""
    source = path.read_text()
    found: list[tuple[int, str]] = []
    if path.suffix in (".py", ".pyi"):
        for node in ast.walk(ast.parse(source)):
            if (name := _assigned_name(node)) and BANNED_NAME.fullmatch(name):
                yield Problem(path, node.lineno, "banned word in a name", name)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                decorators = [ast.unparse(each) for each in node.decorator_list]
                if "property" not in decorators or NOT_NOUNS.fullmatch(
                    node.name.strip("_")
                ):
                    found.append((node.lineno, node.name))
    else:
        for match in FUNCTION.finditer(source):
            found.append((source.count("\n", 0, match.start(1)) + 1, match[1]))
    for line, name in found:
        word = name.strip("_")
        if BANNED_NAME.fullmatch(name) and name not in FOREIGN:
            yield Problem(path, line, "banned word in a name", name)
        if "_" in word or word in ONE_WORD | FOREIGN | POSITIONS:
            continue
        if name.startswith("__") and name.endswith("__"):
            continue
        if re.search(r"[a-z][A-Z]", word) or word[:1].isupper():
            continue  # Java's names, classes
        yield Problem(path, line, "name of one word", name)


def problems_of(path: Path) -> list[Problem]:
    """Return everything in one file that breaks a rule."""
    if path.suffix == ".md":
        return list(problems_of_page(path))
    found = [
        problem for text in texts_of(path) for problem in problems_of_text(path, text)
    ]
    return found + list(problems_of_names(path))


def files_below(folder: Path) -> list[Path]:
    """Return the files below a folder that have rules, or the file itself."""
    if folder.is_file():
        return [folder]
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix in (".py", ".pyx", ".pxd", ".pyi", ".md")
        and "__pycache__" not in path.parts
    )


def product_files() -> list[Path]:
    """Return the files of the product that have rules."""
    return [path for room in ROOMS for path in files_below(ROOT / room)]


def main(*folders: str) -> None:
    """Print the problems below the folders, and how many there are."""
    count = 0
    for folder in folders:
        for path in files_below((ROOT / folder).resolve()):
            for problem in problems_of(path):
                print(problem)  # noqa: T201
                count += 1
    print(f"{count} problems")  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
