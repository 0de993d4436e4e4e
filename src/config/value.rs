//! Types that a setting may have, each read from a TOML value or from text.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// A value as it was given.
#[derive(Clone, Copy)]
pub(super) enum Given<'a> {
    /// In the file.
    Toml(&'a toml::Value),
    /// In the environment or a flag.
    Text(&'a str),
}

/// A type of setting.
pub(super) trait Setting: Sized {
    /// Never shown, not even in an error.
    const SECRET: bool = false;
    /// Reads it; `None` if it is not one.
    fn read(given: Given<'_>) -> Option<Self>;
    /// As TOML; `None` if unset means something of its own.
    fn to_toml(&self) -> Option<String>;
}

macro_rules! integers {
    ($($ty:ty),+) => {$(
        impl Setting for $ty {
            fn read(given: Given<'_>) -> Option<Self> {
                match given {
                    Given::Toml(value) => value.as_integer()?.try_into().ok(),
                    Given::Text(text) => text.trim().parse().ok(),
                }
            }
            fn to_toml(&self) -> Option<String> {
                Some(self.to_string())
            }
        }
    )+};
}
integers!(usize, u16, u32);

impl Setting for bool {
    fn read(given: Given<'_>) -> Option<Self> {
        match given {
            Given::Toml(value) => value.as_bool(),
            Given::Text(text) => text.trim().parse().ok(),
        }
    }
    fn to_toml(&self) -> Option<String> {
        Some(self.to_string())
    }
}

fn text<'a>(given: Given<'a>) -> Option<&'a str> {
    match given {
        Given::Toml(value) => value.as_str(),
        Given::Text(text) => Some(text.trim()),
    }
}

macro_rules! quoted {
    ($($ty:ty),+) => {$(
        impl Setting for $ty {
            fn read(given: Given<'_>) -> Option<Self> {
                text(given)?.parse().ok()
            }
            fn to_toml(&self) -> Option<String> {
                Some(toml::Value::String(self.to_string()).to_string())
            }
        }
    )+};
}
quoted!(String, IpAddr, SocketAddr, LogFormat);

impl Setting for PathBuf {
    fn read(given: Given<'_>) -> Option<Self> {
        text(given).map(Self::from)
    }
    fn to_toml(&self) -> Option<String> {
        Some(toml::Value::String(self.to_str()?.to_owned()).to_string())
    }
}

impl<T: Setting> Setting for Option<T> {
    fn read(given: Given<'_>) -> Option<Self> {
        T::read(given).map(Some)
    }
    fn to_toml(&self) -> Option<String> {
        self.as_ref().and_then(T::to_toml)
    }
}

impl Setting for Vec<IpAddr> {
    fn read(given: Given<'_>) -> Option<Self> {
        match given {
            Given::Toml(toml::Value::Array(items)) => items.iter().map(|v| v.as_str()?.parse().ok()).collect(),
            Given::Toml(_) => None,
            Given::Text(list) => list.split(',').map(|ip| ip.trim().parse().ok()).collect(),
        }
    }
    fn to_toml(&self) -> Option<String> {
        let items: Vec<_> = self.iter().map(|ip| toml::Value::String(ip.to_string())).collect();
        (!items.is_empty()).then(|| toml::Value::Array(items).to_string())
    }
}

/// How logs are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}

impl std::str::FromStr for LogFormat {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            _ => Err(()),
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        })
    }
}

/// A secret: usable, never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes it in.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }
    /// The bytes to sign with.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
    /// How long it is.
    pub fn chars(&self) -> usize {
        self.0.chars().count()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// API keys and their secrets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Keys(pub BTreeMap<String, Secret>);

impl Setting for Keys {
    const SECRET: bool = true;
    fn read(given: Given<'_>) -> Option<Self> {
        let pairs: Vec<(&str, &str)> = match given {
            Given::Toml(toml::Value::Table(table)) => {
                table.iter().map(|(key, secret)| Some((key.as_str(), secret.as_str()?))).collect::<Option<_>>()?
            }
            Given::Toml(_) => return None,
            Given::Text(list) => list.split(',').map(|pair| pair.split_once(':')).collect::<Option<_>>()?,
        };
        let pairs = pairs.into_iter().map(|(key, secret)| (key.trim(), secret.trim()));
        let keys: BTreeMap<_, _> = pairs.map(|(key, secret)| (key.to_owned(), Secret::new(secret))).collect();
        let complete = keys.iter().all(|(key, secret)| !key.is_empty() && secret.chars() > 0);
        complete.then_some(Self(keys))
    }
    fn to_toml(&self) -> Option<String> {
        // Secrets are not written back; only the empty default comes here.
        None
    }
}
