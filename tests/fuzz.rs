//! Replay of the fuzz targets' seeds and findings, and of other people's corpora where `RONDO_VECTORS` names them.
//!
//! The bodies are those of `fuzz/`, compiled here without libFuzzer: a finding that was mended stays mended.

#[path = "../fuzz/src/lib.rs"]
mod bodies;

use bodies::TARGETS;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A name to find the input by, and its bytes.
type Input = (String, Vec<u8>);

/// Every target with the folders of `RONDO_VECTORS` that it reads, each file an input.
fn corpora() -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    let lines = include_str!("../fuzz/targets.txt").lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| {
        let mut words = line.split_whitespace();
        let name = words.next().expect("a name");
        (name, words.skip(1).collect())
    })
}

/// Longest input that libFuzzer is asked to make; what is longer is cut for the replay too.
const INPUT_BYTES_MAX: usize = 65_536;

fn seeds(target: &str) -> Vec<Input> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    let mut inputs = Vec::new();
    for (path, bytes) in files(&folder) {
        match path.extension().is_some_and(|ending| ending == "hex") {
            true => inputs.extend(lines(&path, &bytes)),
            false => inputs.push((path.display().to_string(), bytes)),
        }
    }
    inputs
}

/// The files of a folder in order of name; none where it is not there.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a folder that can be read").path()).collect();
    paths.retain(|path| path.is_file());
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), std::fs::read(path).expect("a file that can be read"))).collect()
}

/// Lines of `name hex`.
fn lines(path: &Path, bytes: &[u8]) -> Vec<Input> {
    let text = std::str::from_utf8(bytes).expect("text");
    let line = |line: &str| {
        let (name, hex) =
            line.split_once(' ').unwrap_or_else(|| panic!("{}: {line:?} is no `name hex`", path.display()));
        let nibble = |b: u8| char::from(b).to_digit(16).unwrap_or_else(|| panic!("{name}: not hex")) as u8;
        let bytes = hex.as_bytes().chunks(2).map(|pair| nibble(pair[0]) << 4 | nibble(pair[1])).collect();
        (format!("{} {name}", path.display()), bytes)
    };
    text.lines().filter(|text| !text.is_empty() && !text.starts_with('#')).map(line).collect()
}

/// Runs a body on an input and a few copies of it, cut or with a bit turned; says which one failed.
fn replay(body: fn(&[u8]), (name, bytes): &Input, copies: usize) {
    let bytes = &bytes[..bytes.len().min(INPUT_BYTES_MAX)];
    let run = |what: &str, bytes: &[u8]| {
        let outcome = std::panic::catch_unwind(|| body(bytes));
        assert!(outcome.is_ok(), "{name}, {what}, {} bytes", bytes.len());
    };
    run("whole", bytes);
    for n in 0..copies.min(bytes.len()) {
        let at = n * bytes.len() / copies.min(bytes.len());
        run(&format!("cut at {at}"), &bytes[..at]);
        let mut turned = bytes.to_vec();
        turned[at] ^= 1 << (n % 8);
        run(&format!("bit {} of byte {at} turned", n % 8), &turned);
    }
}

fn replay_seeds(target: &str, copies: usize) {
    let (_, body) = TARGETS.iter().find(|(name, _)| *name == target).expect("a target");
    let inputs = seeds(target);
    assert!(!inputs.is_empty(), "fuzz/seeds/{target} has no seeds");
    inputs.iter().for_each(|input| replay(*body, input, copies));
    println!("{target}: {} seeds", inputs.len());
}

/// One test a target: they run side by side, and the name says which one failed.
macro_rules! replays {
    ($($target:ident: $copies:literal,)+) => {
        $(#[test]
        fn $target() {
            replay_seeds(stringify!($target), $copies);
        })+
        /// Those that have a test here.
        const REPLAYED: &[&str] = &[$(stringify!($target)),+];
    };
}

// Copies of each seed: fewer where a run costs a handshake or a node.
replays! {
    wire_rtp: 64,
    wire_rtcp: 64,
    wire_stun: 64,
    sdp_offer: 32,
    sdp_fragment: 64,
    codec: 64,
    transport: 1,
    srtp: 8,
    receive: 8,
    egress: 8,
    room: 1,
    doors: 1,
    doors_token: 16,
    doors_config: 16,
}

#[test]
fn every_target_is_replayed_and_has_a_binary() {
    let targets: BTreeSet<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(targets, REPLAYED.iter().copied().collect());
    assert_eq!(targets, corpora().map(|(name, _)| name).collect(), "fuzz/targets.txt names them all");
    let binaries = files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/src/bin"));
    let stem =
        |(path, _): &(PathBuf, Vec<u8>)| path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("").to_owned();
    assert_eq!(
        binaries.iter().map(stem).collect::<BTreeSet<_>>(),
        targets.iter().map(|name| (*name).to_owned()).collect()
    );
}

#[test]
fn corpora_of_others() {
    let Some(vectors) = std::env::var_os("RONDO_VECTORS").map(PathBuf::from) else {
        println!("RONDO_VECTORS is not set: other people's corpora are not replayed");
        return;
    };
    for (target, folders) in corpora().filter(|(_, folders)| !folders.is_empty()) {
        let (_, body) = TARGETS.iter().find(|(name, _)| *name == target).expect("a target");
        let inputs = folders.iter().flat_map(|folder| files(&vectors.join(folder)));
        let inputs: Vec<Input> = inputs.map(|(path, bytes)| (path.display().to_string(), bytes)).collect();
        assert!(!inputs.is_empty(), "{} has none of {folders:?}", vectors.display());
        inputs.iter().for_each(|input| replay(*body, input, 8));
        println!("{target}: {} inputs of others", inputs.len());
    }
}
