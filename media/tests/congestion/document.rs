//! What `docs/congestion.md` tells of these tests.

use std::path::PathBuf;
use std::sync::Mutex;

/// One test at a time writes.
static WRITES: Mutex<()> = Mutex::new(());

pub fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs"))
}

/// What is told is written anew.
pub fn is_to_be_written() -> bool {
    std::env::var_os("RONDO_UPDATE_SNAPSHOTS").is_some()
}

fn split(name: &str) -> [String; 3] {
    let (begins, ends) = (format!("<!-- {name}: begins -->\n"), format!("<!-- {name}: ends -->"));
    let document = std::fs::read_to_string(folder().join("congestion.md")).unwrap();
    let (before, rest) = document.split_once(&begins).expect("the document has a place for the table");
    let (part, after) = rest.split_once(&ends).expect("the document has an end of the table");
    [before.to_owned() + &begins, part.to_owned(), ends + after]
}

/// What stands between the marks of that name.
pub fn part(name: &str) -> String {
    let [_, part, _] = split(name);
    part
}

pub fn write(name: &str, part: &str) {
    let _guard = WRITES.lock().unwrap();
    let [before, _, after] = split(name);
    std::fs::write(folder().join("congestion.md"), [&before, part, &after].concat()).unwrap();
}
