//! A room's event stream (`text/event-stream`), read on a thread of its own and kept whole.

use super::http::Api;
use super::wait::Watched;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::sync::Arc;
use std::time::Duration;

/// One event.
#[derive(Debug, Clone)]
pub struct Event {
    /// `id:`, empty where there is none.
    pub id: String,
    /// `event:`
    pub name: String,
    /// `data:`
    pub data: Value,
}

/// An open stream and what came so far.
pub struct Events {
    seen: Arc<Watched<Vec<Event>>>,
}

impl Events {
    /// Opens the stream of `room`; returns when the snapshot is there.
    pub fn open(api: &Api, room: &str) -> Self {
        let response = api.open_stream(&format!("/api/v1/rooms/{room}/events"));
        let seen = Arc::new(Watched::<Vec<Event>>::default());
        let writer = seen.clone();
        // Ends with the stream, at the latest when the server stops.
        std::thread::spawn(move || read(BufReader::new(response), &writer));
        let events = Self { seen };
        events.wait_for("snapshot", Duration::from_secs(5), |_| true);
        events
    }

    /// Everything that came so far.
    pub fn all(&self) -> Vec<Event> {
        self.seen.get()
    }

    /// The first event of that name, past or to come, of which `holds` is true.
    ///
    /// # Panics
    /// With everything that came, when `within` is over.
    pub fn wait_for(&self, name: &str, within: Duration, holds: impl Fn(&Value) -> bool) -> Event {
        let find = |all: &[Event]| all.iter().find(|e| e.name == name && holds(&e.data)).cloned();
        match self.seen.wait_until(within, |all| find(all).is_some()) {
            Ok(all) => find(&all).expect("found a moment ago"),
            Err(all) => panic!("no such event {name} within {within:?}; there were {all:#?}"),
        }
    }
}

/// Reads events until the stream ends (WHATWG HTML §9.2.6).
fn read(lines: impl BufRead, seen: &Watched<Vec<Event>>) {
    let (mut id, mut name, mut data) = (String::new(), String::new(), String::new());
    for line in lines.lines() {
        let Ok(line) = line else { return };
        if line.is_empty() {
            if !data.is_empty() {
                let data = serde_json::from_str(&data).unwrap_or(Value::Null);
                let event = Event { id: id.clone(), name: std::mem::take(&mut name), data };
                seen.update(|all| all.push(event));
            }
            name.clear();
            data.clear();
            continue;
        }
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => id = value.to_owned(),
            "event" => name = value.to_owned(),
            "data" => data.push_str(value),
            // Comments (`:`), `retry` and unknown fields.
            _ => {}
        }
    }
}

#[test]
fn a_stream_is_read_as_the_standard_says() {
    let text = b": hello\n\nid: 7\nevent: track_published\ndata: {\"a\":\ndata: 1}\n\nevent: nothing\n\ndata: 2\n\n";
    let seen = Watched::default();
    read(&text[..], &seen);
    let all: Vec<_> = seen.get().into_iter().map(|e| (e.id, e.name, e.data.to_string())).collect();
    // An event without data is none; the id stays the last one given.
    assert_eq!(
        all,
        [
            ("7".to_owned(), "track_published".to_owned(), "{\"a\":1}".to_owned()),
            ("7".to_owned(), String::new(), "2".to_owned())
        ]
    );
}
