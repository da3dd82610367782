#!/bin/sh
# Print one string of a JSON object's top level: json-field.sh KEY <object
#
# Whitespace, order of keys, nesting and escapes do not matter. Prints nothing, and fails, if the document is
# not one whole object, or if the value is not a string of the letters that base64 and URLs are made of.
LC_ALL=C exec awk -v key="$1" '
    function fail() { exit 1 }
    function hex(digits,    n, i) {
        n = 0
        for (i = 1; i <= 4; i++) n = n * 16 + index("0123456789abcdef", tolower(substr(digits, i, 1))) - 1
        return n
    }
    function skip() { while (at <= size && index(" \t\r\n", substr(doc, at, 1))) at++ }
    function text(    out, from, c) {           # at a quote; the inside, where only escaped ASCII is undone
        out = ""
        from = ++at
        while (at <= size) {
            c = substr(doc, at, 1)
            if (c == "\"") {
                out = out substr(doc, from, at - from)
                at++
                return out
            }
            if (c == "\\") {
                if (substr(doc, at, 2) == "\\/") {
                    out = out substr(doc, from, at - from)
                    from = at + 1
                } else if (substr(doc, at, 6) ~ /^\\u00[2-7][0-9A-Fa-f]$/) {
                    out = out substr(doc, from, at - from) sprintf("%c", hex(substr(doc, at + 2, 4)))
                    from = at + 6
                    at += 4
                }
                at++
            }
            at++
        }
        fail()
    }
    function scalar(    from) {                 # number, true, false, null
        from = at
        while (at <= size && substr(doc, at, 1) ~ /[-+.0-9A-Za-z]/) at++
        if (substr(doc, from, at - from) !~ /^(true|false|null|-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][-+]?[0-9]+)?)$/)
            fail()
    }
    function comma(close_with,    c) {          # after an item: whether there is another one
        skip()
        c = substr(doc, at, 1)
        at++
        if (c == ",") return 1
        if (c != close_with) fail()
        return 0
    }
    function value(depth,    c, name) {
        if (depth > 64) fail()
        skip()
        c = substr(doc, at, 1)
        if (c == "\"") return text()
        if (c == "{") {
            at++
            skip()
            if (substr(doc, at, 1) == "}") { at++; return "" }
            do {
                skip()
                if (substr(doc, at, 1) != "\"") fail()
                name = text()
                skip()
                if (substr(doc, at, 1) != ":") fail()
                at++
                skip()
                c = substr(doc, at, 1)
                if (depth == 0 && name == key) {
                    found = ""
                    if (c == "\"") found = text(); else value(depth + 1)
                } else value(depth + 1)
            } while (comma("}"))
            return ""
        }
        if (c == "[") {
            at++
            skip()
            if (substr(doc, at, 1) == "]") { at++; return "" }
            do value(depth + 1); while (comma("]"))
            return ""
        }
        scalar()
        return ""
    }
    { doc = doc $0 "\n" }
    END {
        at = 1
        size = length(doc)
        skip()
        if (substr(doc, at, 1) != "{") exit 1
        value(0)
        skip()
        if (at <= size || found !~ /^[-A-Za-z0-9+\/=_.:]+$/) exit 1
        print found
    }
'
