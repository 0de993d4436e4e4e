//! What is linked into the binary, or builds it, is as free as the project (MIT OR Apache-2.0).

use std::process::Command;

/// Licences that ask for no more than a notice.
const FREE: [&str; 11] = [
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Zlib",
];

/// Crates with another licence, and why they may stay.
const EXCEPTIONS: [(&str, &str); 1] =
    [("option-ext", "MPL-2.0, unmodified; only a macro that runs while the pages are embedded uses it")];

/// Whether an SPDX expression can be satisfied by `FREE` alone. AND binds closer than OR; `/` is an old way to write OR.
fn is_free(expression: &str) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    any(&mut rest) && rest.is_empty()
}

fn any(words: &mut &[&str]) -> bool {
    let mut free = all(words);
    while let ["OR", rest @ ..] = *words {
        *words = rest;
        free |= all(words);
    }
    free
}

fn all(words: &mut &[&str]) -> bool {
    let mut free = one(words);
    while let ["AND", rest @ ..] = *words {
        *words = rest;
        free &= one(words);
    }
    free
}

fn one(words: &mut &[&str]) -> bool {
    let [first, rest @ ..] = *words else { return false };
    *words = rest;
    if *first != "(" {
        return FREE.contains(first);
    }
    let free = any(words);
    let [")", rest @ ..] = *words else { return false };
    *words = rest;
    free
}

#[test]
fn expressions_are_read_as_spdx_says() {
    for free in ["MIT", "GPL-3.0 OR MIT", "MIT/Apache-2.0", "(MIT OR GPL-3.0) AND ISC", "GPL-3.0 AND ISC OR MIT"] {
        assert!(is_free(free), "{free}");
    }
    for bound in ["", "GPL-3.0", "MIT AND GPL-3.0", "MIT AND (GPL-3.0 OR MPL-2.0)", "(MIT", "MIT)"] {
        assert!(!is_free(bound), "{bound}");
    }
}

#[test]
fn everything_that_is_linked_is_free() {
    let args = ["tree", "--package", "rondo", "--edges", "normal,build", "--prefix", "none", "--no-dedupe"];
    let out = Command::new(env!("CARGO"))
        .args(args)
        .args(["--format", "{p}|{l}", "--offline", "--locked"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).expect("cargo speaks UTF-8");
    let mut bound: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split_once('|'))
        .filter(|(package, licence)| {
            let name = package.split(' ').next().unwrap_or_default();
            !is_free(licence) && !EXCEPTIONS.iter().any(|(allowed, _)| *allowed == name)
        })
        .map(|(package, _)| package)
        .collect();
    bound.sort_unstable();
    bound.dedup();
    assert!(bound.is_empty(), "not as free as the project; replace it, or name it and why in EXCEPTIONS: {bound:#?}");
}
