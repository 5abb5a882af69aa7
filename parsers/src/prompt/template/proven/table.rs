//! What templates may use without their count becoming bounds: each name with the arguments that were compared with Python's.
//!
//! A name that is missing here is not forbidden: it renders if it can, and the count is bounds. Whoever adds a line shows in
//! `tests/counting/jinja.jsonl` that Python does the same.

/// A name, the fewest and the most arguments by place, and those by name.
pub(super) type Signature = (&'static str, usize, usize, &'static [&'static str]);

pub(super) const FILTERS: &[Signature] = &[
    ("capitalize", 0, 0, &[]),
    ("count", 0, 0, &[]),
    ("d", 1, 2, &[]),
    ("default", 1, 2, &[]),
    ("dictsort", 0, 0, &[]),
    ("first", 0, 0, &[]),
    ("indent", 0, 2, &["width", "first", "blank"]),
    ("int", 0, 0, &[]),
    ("items", 0, 0, &[]),
    ("join", 0, 1, &["attribute"]),
    ("last", 0, 0, &[]),
    ("length", 0, 0, &[]),
    ("list", 0, 0, &[]),
    ("lower", 0, 0, &[]),
    ("map", 1, 1, &[]),
    ("map", 0, 0, &["attribute"]),
    ("max", 0, 0, &[]),
    ("min", 0, 0, &[]),
    ("reject", 0, 2, &[]),
    ("rejectattr", 1, 3, &[]),
    ("replace", 2, 2, &[]),
    ("safe", 0, 0, &[]),
    ("select", 0, 2, &[]),
    ("selectattr", 1, 3, &[]),
    ("sort", 0, 0, &["attribute"]),
    ("string", 0, 0, &[]),
    ("tojson", 0, 2, &["ensure_ascii", "indent", "separators", "sort_keys"]),
    ("trim", 0, 1, &[]),
    ("unique", 0, 0, &[]),
    ("upper", 0, 0, &[]),
];

pub(super) const TESTS: &[Signature] = &[
    ("==", 1, 1, &[]),
    ("boolean", 0, 0, &[]),
    ("defined", 0, 0, &[]),
    ("divisibleby", 1, 1, &[]),
    ("eq", 1, 1, &[]),
    ("equalto", 1, 1, &[]),
    ("even", 0, 0, &[]),
    ("false", 0, 0, &[]),
    ("float", 0, 0, &[]),
    ("in", 1, 1, &[]),
    ("integer", 0, 0, &[]),
    ("iterable", 0, 0, &[]),
    ("mapping", 0, 0, &[]),
    ("ne", 1, 1, &[]),
    ("none", 0, 0, &[]),
    ("number", 0, 0, &[]),
    ("odd", 0, 0, &[]),
    ("sequence", 0, 0, &[]),
    ("string", 0, 0, &[]),
    ("true", 0, 0, &[]),
    ("undefined", 0, 0, &[]),
];

/// Functions; of `namespace` and `dict` any member is an argument by name.
pub(super) const FUNCTIONS: &[Signature] = &[
    ("dict", 0, 0, &["*"]),
    ("namespace", 0, 0, &["*"]),
    ("raise_exception", 1, 1, &[]),
    ("range", 1, 3, &[]),
    ("strftime_now", 1, 1, &[]),
];

pub(super) const METHODS: &[Signature] = &[
    ("capitalize", 0, 0, &[]),
    ("count", 1, 1, &[]),
    ("endswith", 1, 1, &[]),
    ("find", 1, 1, &[]),
    ("format", 0, 8, &[]),
    ("get", 1, 2, &[]),
    ("isalnum", 0, 0, &[]),
    ("isalpha", 0, 0, &[]),
    ("isascii", 0, 0, &[]),
    ("isdigit", 0, 0, &[]),
    ("islower", 0, 0, &[]),
    ("isnumeric", 0, 0, &[]),
    ("isspace", 0, 0, &[]),
    ("isupper", 0, 0, &[]),
    ("items", 0, 0, &[]),
    ("join", 1, 1, &[]),
    ("keys", 0, 0, &[]),
    ("lower", 0, 0, &[]),
    ("lstrip", 0, 1, &[]),
    ("removeprefix", 1, 1, &[]),
    ("removesuffix", 1, 1, &[]),
    ("replace", 2, 3, &[]),
    ("rfind", 1, 1, &[]),
    ("rsplit", 0, 2, &["sep", "maxsplit"]),
    ("rstrip", 0, 1, &[]),
    ("split", 0, 2, &["sep", "maxsplit"]),
    ("splitlines", 0, 0, &[]),
    ("startswith", 1, 1, &[]),
    ("strip", 0, 1, &[]),
    ("title", 0, 0, &[]),
    ("upper", 0, 0, &[]),
    ("values", 0, 0, &[]),
];

/// Methods that are not there: a render that comes to one of them fails, and nothing is counted.
pub(super) const MISSING: [&str; 16] = [
    "append",
    "casefold",
    "clear",
    "copy",
    "extend",
    "index",
    "insert",
    "partition",
    "pop",
    "popitem",
    "remove",
    "reverse",
    "rpartition",
    "setdefault",
    "update",
    "zfill",
];

/// What a loop knows of itself.
pub(super) const OF_LOOPS: [&str; 11] = [
    "depth",
    "depth0",
    "first",
    "index",
    "index0",
    "last",
    "length",
    "nextitem",
    "previtem",
    "revindex",
    "revindex0",
];

/// Names that mean something in Python's Jinja and nothing here.
pub(super) const PYTHON_ONLY: [&str; 7] =
    ["self", "lipsum", "cycler", "joiner", "caller", "varargs", "kwargs"];

/// Filters that give in Python what can be walked through once.
pub(super) const LAZY: [&str; 7] =
    ["map", "reject", "rejectattr", "reverse", "select", "selectattr", "unique"];

/// Filters that walk through what they are given once, from its front.
pub(super) const WALKING: [&str; 11] = [
    "first",
    "join",
    "list",
    "map",
    "reject",
    "rejectattr",
    "select",
    "selectattr",
    "sort",
    "tojson",
    "unique",
];

/// Whether so many arguments, and those by name, are among those compared.
pub(super) fn has(table: &[Signature], name: &str, places: usize, names: &[&str]) -> bool {
    table.iter().any(|(known, least, most, by_name)| {
        let named = names.iter().all(|name| by_name.contains(&"*") || by_name.contains(name));
        *known == name && (*least..=*most).contains(&places) && named
    })
}
