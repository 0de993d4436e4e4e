//! Reading of the vectors and cases beside the tests: flat JSON objects of texts and numbers.
#![allow(dead_code)] // Each test binary uses a part.

use std::collections::BTreeMap;

/// A flat JSON object; nested objects are flattened with `outer.inner` names.
pub struct Json(BTreeMap<String, String>);

impl Json {
    /// Panics on anything but objects of texts and numbers without escapes: the files are ours.
    pub fn parse(text: &str) -> Self {
        let mut fields = BTreeMap::new();
        let mut path: Vec<String> = Vec::new();
        let mut key: Option<String> = None;
        let mut rest = text.trim_start();
        while let Some(c) = rest.chars().next() {
            match c {
                '{' => {
                    path.extend(key.take());
                    rest = &rest[1..];
                }
                '}' => {
                    path.pop();
                    rest = &rest[1..];
                }
                ':' | ',' | ' ' | '\n' => rest = &rest[1..],
                '"' => {
                    let (word, after) = rest[1..].split_once('"').unwrap();
                    Self::word(&mut fields, &path, &mut key, word);
                    rest = after;
                }
                _ => {
                    let end = rest.find([',', '}', '\n']).unwrap_or(rest.len());
                    Self::word(&mut fields, &path, &mut key, &format!("#{}", &rest[..end]));
                    rest = &rest[end..];
                }
            }
        }
        Self(fields)
    }

    fn word(fields: &mut BTreeMap<String, String>, path: &[String], key: &mut Option<String>, word: &str) {
        match key.take() {
            None => *key = Some(word.to_owned()),
            Some(name) => {
                let full = path.iter().cloned().chain([name]).collect::<Vec<_>>().join(".");
                fields.insert(full, word.to_owned());
            }
        }
    }

    /// A text; `None` where it is missing, null or a number.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|v| !v.starts_with('#'))
    }

    /// A number; `None` where it is missing or a text.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.0.get(name)?.strip_prefix('#')?.trim().parse().ok()
    }

    /// The bytes of a text of hex digits.
    pub fn bytes(&self, name: &str) -> Vec<u8> {
        unhex(self.text(name).unwrap_or_else(|| panic!("no {name}")))
    }
}

/// Bytes of a text of hex digits.
pub fn unhex(text: &str) -> Vec<u8> {
    let nibble = |b: u8| (b as char).to_digit(16).unwrap() as u8;
    text.as_bytes().chunks(2).map(|pair| nibble(pair[0]) << 4 | nibble(pair[1])).collect()
}
