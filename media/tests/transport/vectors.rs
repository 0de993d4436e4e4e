//! Offers collected elsewhere: each is answered or refused with a reason, never a panic.

use crate::net::*;
use rondo_media::transport::{Accept, Role, Transport};
use std::path::Path;

fn files(folder: &Path, out: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { files(&path, out) } else { out.push(path) }
    }
}

#[test]
fn collected_offers_are_answered_or_refused() {
    let Some(root) = std::env::var_os("RONDO_VECTORS") else {
        println!("RONDO_VECTORS is not set: collected offers were not replayed");
        return;
    };
    let (now, candidates) = (start(), [address(SERVER)]);
    let mut paths = Vec::new();
    files(Path::new(&root), &mut paths);
    let (mut answered, mut refused) = (0, 0);
    for path in paths.iter().filter(|p| p.to_string_lossy().contains("sdp")) {
        let text = String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
        for role in [Role::Publish, Role::Play] {
            match Transport::accept(now, shared(), Accept { role, candidates: &candidates, offer: &text }) {
                Ok((_, answer)) => {
                    answered += 1;
                    assert!(answer.finish(&[]).starts_with("v=0\r\no=- "));
                }
                Err(why) => {
                    refused += 1;
                    println!("{} {role:?}: {why}", path.display());
                }
            }
        }
    }
    println!("{answered} answered, {refused} refused");
    assert!(answered > 0);
}
