//! RTCP of other projects' test banks, where RONDO_VECTORS names the folder that holds them.

use rondo_media::wire::rtcp::{Compound, Packet};
use std::fs;
use std::path::PathBuf;

/// Files of a folder of the bank, by name.
fn files(folder: &str) -> Vec<(String, Vec<u8>)> {
    let Some(root) = std::env::var_os("RONDO_VECTORS") else {
        println!("RONDO_VECTORS is not set: {folder} was not replayed");
        return Vec::new();
    };
    let folder = PathBuf::from(root).join(folder);
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let paths = entries.map(|e| e.unwrap().path()).filter(|p| p.is_file());
    let mut files: Vec<_> =
        paths.map(|p| (p.file_name().unwrap().to_string_lossy().into_owned(), fs::read(&p).unwrap())).collect();
    files.sort();
    files
}

/// aiortc says by the file's name what is broken.
#[test]
fn aiortc_packets_are_taken_and_refused_as_they_are_named() {
    let files = files("aiortc");
    let rtcp: Vec<_> = files.iter().filter(|(name, _)| name.starts_with("rtcp_")).collect();
    for (name, bytes) in &rtcp {
        let broken = name.contains("invalid") || name.contains("truncated");
        let read: Result<Vec<_>, _> = Compound::new(bytes).collect();
        assert_eq!(read.is_err(), broken, "{name}: {read:?}");
    }
    assert!(files.is_empty() || rtcp.len() >= 15);
}

/// Seeds of a fuzzer: any answer is right but a panic, and what is walked ends.
#[test]
fn libwebrtc_fuzz_seeds_are_survived() {
    let (mut read, mut refused) = (0, 0);
    for (_, bytes) in files("libwebrtc-corpora/rtcp-corpus") {
        for packet in Compound::new(&bytes) {
            match packet {
                Ok(Packet::Twcc(twcc)) => read += twcc.statuses().count().min(1),
                Ok(Packet::Nack(nack)) => read += nack.lost().count().min(1),
                Ok(_) => read += 1,
                Err(_) => refused += 1,
            }
        }
    }
    println!("{read} packets read, {refused} refused");
}
