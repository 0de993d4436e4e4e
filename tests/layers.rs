//! The arrows between the layers, held: `src → actors → media`, `src → migrations`, and what each may name.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a layer may name in its own manifest. A crate that is not here needs a reason, and a line here.
struct Layer {
    name: &'static str,
    /// Crates of this workspace.
    ours: &'static [&'static str],
    /// Crates of others; `None` leaves them free (the application).
    others: Option<&'static [&'static str]>,
    /// Crates that must not come in by any way, not even behind another crate. A trailing `*` is a prefix.
    never: &'static [&'static str],
}

const LAYERS: [Layer; 6] = [
    Layer {
        name: "rondo-media",
        ours: &[],
        others: Some(&["bytes", "dimpl", "ring", "str0m", "thiserror"]),
        // str0m brings its own tree; none of it may open a socket or run a task.
        never: &["tokio*", "actix*", "mio", "socket2", "quinn-udp", "sled", "redb", "async-std", "smol", "reqwest"],
    },
    Layer {
        name: "rondo-actors",
        ours: &["rondo-media"],
        others: Some(&[
            "actix",
            "actix-rt",
            "bytes",
            "core_affinity",
            "getrandom",
            "libc",
            "quinn-udp",
            "serde",
            "socket2",
            "thiserror",
            "tokio",
            "tracing",
        ]),
        // No door and no database.
        never: &["actix-web*", "actix-http", "actix-ws", "hyper", "reqwest", "sled", "redb", "jsonwebtoken", "utoipa*"],
    },
    Layer {
        name: "rondo-migrations",
        ours: &[],
        others: None,
        never: &["actix*", "tokio*", "str0m", "rondo-media", "rondo-actors", "rondo"],
    },
    Layer {
        name: "rondo-load",
        // A server is not measured by its own code.
        ours: &[],
        others: Some(&[
            "mio",
            "nix",
            "quinn-udp",
            "reqwest",
            "rustls",
            "serde",
            "serde_json",
            "socket2",
            "str0m",
            "thiserror",
            "tokio",
        ]),
        never: &["rondo-media", "rondo-actors", "actix*", "sled", "redb", "clap"],
    },
    Layer {
        name: "rondo-netem",
        ours: &[],
        others: Some(&["clap", "serde", "serde_json", "thiserror", "tokio"]),
        never: &["rondo-media", "rondo-actors", "actix*", "sled", "redb"],
    },
    Layer {
        name: "rondo",
        ours: &["rondo-actors", "rondo-load", "rondo-media", "rondo-migrations"],
        others: None,
        never: &["opentelemetry-prometheus", "actix-web-actors"],
    },
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Standard output of cargo in the workspace; `--offline`, because a test asks nobody.
fn cargo(args: &[&str]) -> String {
    let out = Command::new(env!("CARGO"))
        .args(args)
        .args(["--offline", "--locked"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(out.status.success(), "cargo {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("cargo speaks UTF-8")
}

/// Direct, normal dependencies by package of this workspace.
fn direct_dependencies() -> BTreeMap<String, BTreeSet<String>> {
    dependencies(|_| true)
}

fn dependencies(counts: impl Fn(&Value) -> bool) -> BTreeMap<String, BTreeSet<String>> {
    let metadata: Value =
        serde_json::from_str(&cargo(&["metadata", "--format-version", "1", "--no-deps"])).expect("metadata is JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    packages
        .iter()
        .map(|package| {
            let names = package["dependencies"].as_array().expect("dependencies").iter();
            // Normal dependencies have no kind; `dev` and `build` do not reach the product's code.
            let names = names
                .filter(|d| d["kind"].is_null() && counts(d))
                .filter_map(|d| d["name"].as_str())
                .map(str::to_owned);
            (package["name"].as_str().expect("name").to_owned(), names.collect())
        })
        .collect()
}

/// Everything that is linked with `package` in its default features, itself left out.
fn whole_tree(package: &str) -> BTreeSet<String> {
    let tree = cargo(&["tree", "--package", package, "--edges", "normal", "--prefix", "none"]);
    tree.lines().filter_map(|line| line.split(' ').next()).filter(|n| *n != package).map(str::to_owned).collect()
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    }
}

/// What `layer` breaks, given its direct dependencies and its whole tree.
fn offences(layer: &Layer, direct: &BTreeSet<String>, tree: &BTreeSet<String>) -> Vec<String> {
    let mut found = Vec::new();
    for name in direct {
        let ours = name == "rondo" || name.starts_with("rondo-");
        let allowed = match (ours, layer.others) {
            (true, _) => layer.ours.contains(&name.as_str()),
            (false, Some(others)) => others.contains(&name.as_str()),
            (false, None) => true,
        };
        if !allowed {
            found.push(format!("{} names {name}", layer.name));
        }
    }
    for name in tree {
        if layer.never.iter().any(|pattern| matches(pattern, name)) {
            found.push(format!("{} brings in {name}", layer.name));
        }
    }
    found
}

#[test]
fn layers_name_only_what_they_may() {
    let direct = direct_dependencies();
    let known: BTreeSet<&str> = LAYERS.iter().map(|l| l.name).collect();
    let unknown: Vec<_> = direct.keys().filter(|name| !known.contains(name.as_str())).collect();
    assert!(unknown.is_empty(), "crates without a layer; give each a line in LAYERS: {unknown:?}");

    let mut found = Vec::new();
    for layer in &LAYERS {
        let names = direct.get(layer.name).unwrap_or_else(|| panic!("{} is not in the workspace", layer.name));
        found.extend(offences(layer, names, &whole_tree(layer.name)));
    }
    assert!(found.is_empty(), "the arrows of ARCHITECTURE.md point the other way: {found:#?}");
}

#[test]
fn the_fuzz_workspace_is_locked_to_what_we_depend_on() {
    let file = root().join("fuzz/Cargo.lock");
    let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let lock: toml::Table = text.parse().unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let packages = lock["package"].as_array().expect("packages");
    // What a feature adds is not fuzzed.
    let direct = dependencies(|dependency| dependency["optional"] != true);
    let mut missing = Vec::new();
    for package in packages {
        let name = package["name"].as_str().expect("a name");
        let Some(names) = direct.get(name) else { continue };
        let locked = package.get("dependencies").and_then(toml::Value::as_array).into_iter().flatten();
        // `name`, or `name version` where there are two.
        let locked: BTreeSet<&str> = locked.filter_map(|d| d.as_str()?.split(' ').next()).collect();
        missing.extend(names.iter().filter(|n| !locked.contains(n.as_str())).map(|n| format!("{name} needs {n}")));
    }
    assert!(missing.is_empty(), "`make fuzz` builds --locked; run `cargo update --workspace` in fuzz/: {missing:?}");
}

#[test]
fn an_arrow_that_points_back_is_seen() {
    let names = |list: &[&str]| list.iter().map(|n| (*n).to_owned()).collect::<BTreeSet<_>>();
    let media = &LAYERS[0];
    assert_eq!(offences(media, &names(&["bytes", "str0m"]), &names(&["bytes", "rand"])), Vec::<String>::new());
    assert_eq!(
        offences(media, &names(&["tokio", "rondo-actors"]), &names(&["tokio-util", "actix_derive", "mio"])),
        [
            "rondo-media names rondo-actors",
            "rondo-media names tokio",
            "rondo-media brings in actix_derive",
            "rondo-media brings in mio",
            "rondo-media brings in tokio-util"
        ]
    );
}

/// Path and reason of each ban in a `clippy.toml`.
fn bans(file: &Path) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let table: toml::Table = text.parse().unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let lists = ["disallowed-methods", "disallowed-types"].into_iter().filter_map(|key| table.get(key)?.as_array());
    lists
        .flatten()
        .map(|ban| {
            let text = |key| ban.get(key).and_then(toml::Value::as_str).unwrap_or_default().to_owned();
            (text("path"), text("reason"))
        })
        .collect()
}

#[test]
fn the_compiler_holds_what_manifests_cannot() {
    let wanted: [(&str, &[&str]); 2] = [
        ("clippy.toml", &["actix::Addr::do_send", "actix::Recipient::do_send", "std::thread::sleep"]),
        (
            "media/clippy.toml",
            &[
                "std::time::Instant::now",
                "std::time::SystemTime::now",
                "std::thread::spawn",
                "std::thread::sleep",
                "std::net::UdpSocket",
                "std::net::TcpStream",
                "std::net::TcpListener",
            ],
        ),
    ];
    for (file, paths) in wanted {
        let bans = bans(&root().join(file));
        for path in paths {
            assert!(bans.contains_key(*path), "{file} no longer bans {path}");
        }
        for (path, reason) in bans {
            assert!(reason.split_whitespace().count() >= 4, "{file}: the ban of {path} has no reason that teaches");
        }
    }
}

#[test]
fn media_has_no_unsafe_code() {
    let text = std::fs::read_to_string(root().join("media/src/lib.rs")).expect("media/src/lib.rs");
    assert!(text.lines().any(|line| line.trim() == "#![forbid(unsafe_code)]"), "media forbids unsafe code");
}
