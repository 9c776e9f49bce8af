# SPDX-License-Identifier: BSD-3-Clause
"""What manual pages are made of, read from the sources: tables of commands and options, texts of --help, declarations of a header.

A table that is not understood as a whole is a ValueError: a page never lacks a row in silence.
"""

import re

STRING = r'"((?:[^"\\]|\\.)*)"'
OPTION = re.compile(r"\{\s*" + STRING + r",\s*(OPTION_\w+),\s*(\w+),\s*FIELD\(\w+\),\s*" + STRING + r",\s*" + STRING + r"\s*\}")
COMMAND = re.compile(r"\{\s*" + STRING + r",\s*" + STRING + r",\s*\d+,\s*\d+,\s*([\w |]+),\s*\w+,\s*" + STRING + r"\s*\}")
MODE = re.compile(r"\{\s*" + STRING + r",\s*(\w+),\s*\w+,\s*" + STRING + r"\s*\}")
BANNER = re.compile(r"^-{5,} (.+?) -{5,}$")


def unescape(text):
    return text.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"').replace("\\\\", "\\")


def braces(text, start):
    """From the `{` at or behind start to its `}`."""
    begin = text.index("{", start)
    depth = 0
    for n in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[n], 0)
        if depth == 0:
            return text[begin:n + 1]
    raise ValueError("a brace that does not end")


def rows(text, declaration, pattern):
    """The rows of the table that this declaration begins."""
    at = text.find(declaration)
    if at < 0:
        raise ValueError(f"no table '{declaration}'")
    body = braces(text, at)
    found = [m.groups() for m in pattern.finditer(body)]
    n_rows = len(re.findall(r'\{\s*"', body))
    if not found or len(found) != n_rows:
        raise ValueError(f"{declaration}: {len(found)} rows understood of {n_rows}")
    return [tuple(unescape(cell) for cell in row) for row in found]


def options(text, declaration):
    """[(name, kind, bit, value, help)]"""
    return rows(text, declaration, OPTION)


def commands(text):
    """[(name, arguments, {bits}, help)]"""
    macros = dict(re.findall(r"#define (\w+) \(([\w |]+)\)", text))
    result = []
    for name, arguments, bits, meaning in rows(text, "struct command commands[]", COMMAND):
        words = {w for bit in bits.split("|") for w in macros.get(bit.strip(), bit.strip()).split(" | ")}
        result.append((name, arguments, words, meaning))
    return result


def modes(text):
    """[(name, bit, help)]"""
    return rows(text, "struct mode modes[]", MODE)


def help_text(text, function):
    """The string literals of a function, one after the other."""
    at = re.search(rf"^\w[\w \*]*\b{function}\([^;{{]*\n\{{", text, re.M)
    if not at:
        raise ValueError(f"no function {function}")
    return unescape("".join(re.findall(STRING, braces(text, at.start()))))


def listed(text, title):
    """[(left, right)] of the indented lines behind a title such as "exit codes:"."""
    match = re.search(rf"^{title}:\n((?:  .*\n)+)", text, re.M | re.I)
    if not match:
        raise ValueError(f"no list '{title}' in the help")
    return [tuple(re.split(r"  +", line.strip(), maxsplit=1)) for line in match.group(1).splitlines()]


def long_options(text):
    """Names of a getopt_long table."""
    return re.findall(r'\{"([\w-]+)",\s*(?:no|required)_argument', text)


def symbols(text):
    """The exported names of a version script."""
    return sorted(re.findall(r"^\s+(\w+);", text.split("local:")[0], re.M))


class Item:
    """A declaration of a header: kind banner, text (a comment of its own), define, struct, function or type."""

    def __init__(self, kind, name, code, comment):
        self.kind, self.name, self.code, self.comment = kind, name, code, comment


def comment_text(comment):
    lines = [re.sub(r"^\s*\*? ?", "", line).rstrip() for line in comment[2:-2].splitlines()]
    return "\n".join(lines).strip()


def classify(code, comment):
    match = re.match(r"(?:struct|enum) (\w+)\s*\{", code)
    if match:
        return Item("struct", match.group(1), code, comment)
    match = re.match(r"typedef .*?\(\*(\w+)\)", code, re.S)
    if match:
        return Item("type", match.group(1), code, comment)
    match = re.match(r"struct (\w+);$", code)
    if match:
        return Item("type", match.group(1), code, comment)
    match = re.search(r"\b(\w+)\(", code)
    if match and not code.startswith(("extern", "static_assert")):
        return Item("function", match.group(1), code, comment)
    return None


def declarations(text):
    """The items of a header, in order; each with the comment in front of it, or the one behind it on its line."""
    items, pending = [], ""
    body = text[text.index("#ifdef __cplusplus"):].replace('extern "C" {\n', "")
    token = re.compile(r"/\*.*?\*/|^#define (\w+)[^\n]*\n|^#[^\n]*\n|^[a-z][^;{]*(?:\{.*?^\})?[^;{]*;(?:[ \t]*/\*.*?\*/)?", re.S | re.M)
    for match in token.finditer(body):
        code = match.group(0)
        if code.startswith("/*"):
            title = BANNER.match(comment_text(code))
            if pending:
                items.append(Item("text", "", "", pending))
            if title:
                items.append(Item("banner", title.group(1), "", ""))
            pending = "" if title else comment_text(code)
            continue
        if code.startswith("#"):
            if match.group(1):
                items.append(Item("define", match.group(1), code.strip(), ""))
            pending = ""
            continue
        behind = re.search(r";[ \t]*(/\*.*?\*/)$", code, re.S) if "{" not in code else None
        comment = pending or (comment_text(behind.group(1)) if behind else "")
        if behind:
            code = code[:code.index(";") + 1]
        item = classify(code, comment)
        if item:
            items.append(item)
        pending = ""
    return items
