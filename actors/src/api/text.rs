//! How ids, codecs and verdicts are written.

use rondo_media::codec::{Codec, Kind};
use rondo_media::quality::{Cause, Verdict};
use serde::Serialize;

pub fn text<T: std::fmt::Display, S: serde::Serializer>(value: &T, s: S) -> Result<S::Ok, S::Error> {
    s.collect_str(value)
}

pub fn option_text<T: std::fmt::Display, S: serde::Serializer>(value: &Option<T>, s: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => s.collect_str(value),
        None => s.serialize_none(),
    }
}

pub fn codec_text<S: serde::Serializer>(value: &Option<Codec>, s: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(codec) => s.serialize_str(codec.label()),
        None => s.serialize_none(),
    }
}

pub fn verdict<S: serde::Serializer>(value: &Option<Verdict>, s: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Words {
        quality: &'static str,
        cause: Option<&'static str>,
    }
    let words = |verdict: &Verdict| Words { quality: verdict.quality.label(), cause: verdict.cause.map(Cause::label) };
    value.as_ref().map(words).serialize(s)
}

pub fn kind_text<S: serde::Serializer>(value: &Kind, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(match value {
        Kind::Audio => "audio",
        Kind::Video => "video",
    })
}
