//! Putting the layers together, and saying precisely what is wrong with one of them.

use super::value::Given;
use super::{Config, Rejected};
use std::fmt;
use std::path::{Path, PathBuf};

/// A setting given as a flag.
#[derive(Debug, Clone)]
pub struct FlagValue {
    /// The flag as it is typed, such as `--advertise`.
    pub flag: &'static str,
    /// Section of the setting.
    pub section: &'static str,
    /// Key of the setting.
    pub key: &'static str,
    /// What was given.
    pub value: String,
}

/// Where to read from.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// A file that must be there.
    pub file: Option<PathBuf>,
    /// Environment variables; only `RONDO_…` ones are looked at.
    pub env: Vec<(String, String)>,
    /// Flags, which win.
    pub flags: Vec<FlagValue>,
    /// Development mode.
    pub dev: bool,
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A file.
    File(PathBuf),
    /// An environment variable.
    Env(String),
    /// A flag.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File(path) => write!(f, "{}", path.display()),
            Origin::Env(name) => write!(f, "environment variable {name}"),
            Origin::Flag(flag) => write!(f, "flag {flag}"),
        }
    }
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {}: {source}", .path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("{}: not TOML: {message}", .path.display())]
    NotToml {
        /// Which.
        path: PathBuf,
        /// Line, column and reason, without the line's text (it may hold a secret).
        message: String,
    },
    /// No such section.
    #[error("{origin}: there is no section [{section}]{}", nearest_text(.nearest))]
    UnknownSection {
        /// Where.
        origin: Origin,
        /// As it was given.
        section: String,
        /// The known one that looks most like it.
        nearest: Option<String>,
    },
    /// No such key.
    #[error("{origin}: there is no setting {section}.{key}{}", nearest_text(.nearest))]
    UnknownKey {
        /// Where.
        origin: Origin,
        /// Its section.
        section: String,
        /// As it was given.
        key: String,
        /// The known one that looks most like it.
        nearest: Option<String>,
    },
    /// A value that is not allowed.
    #[error("{origin}: {section}.{key} = {value} is not allowed; allowed is {allowed}")]
    NotAllowed {
        /// Where.
        origin: Origin,
        /// Section.
        section: String,
        /// Key.
        key: String,
        /// As it was given; `[secret]` for secrets.
        value: String,
        /// What would be right.
        allowed: &'static str,
    },
    /// A rule between settings is broken.
    #[error("{0}")]
    Rule(String),
}

fn nearest_text(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!("; did you mean {name}?")).unwrap_or_default()
}

impl Sources {
    /// Reads every layer, and checks the rules between settings.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place, key, value and what is allowed.
    pub fn load(&self) -> Result<Config, ConfigError> {
        let config = self.read()?;
        config.check()?;
        Ok(config)
    }

    /// Reads every layer.
    ///
    /// # Errors
    /// As [`Sources::load`].
    pub fn read(&self) -> Result<Config, ConfigError> {
        let mut config = Config { dev: self.dev, ..Config::default() };
        if let Some(path) = &self.file {
            read_file(&mut config, path)?;
        }
        for (name, value) in &self.env {
            read_variable(&mut config, name, value)?;
        }
        for flag in &self.flags {
            let origin = Origin::Flag(flag.flag);
            assign(&mut config, &origin, flag.section, flag.key, Given::Text(&flag.value))?;
        }
        Ok(config)
    }
}

fn read_file(config: &mut Config, path: &Path) -> Result<(), ConfigError> {
    let text =
        std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let at = error.span().map_or(0, |span| span.start);
        let line = text.get(..at).unwrap_or_default().lines().count().max(1);
        ConfigError::NotToml { path: path.to_owned(), message: format!("line {line}: {}", error.message()) }
    })?;
    let origin = Origin::File(path.to_owned());
    for (section, content) in &table {
        let toml::Value::Table(content) = content else {
            return Err(unknown_section(&origin, section));
        };
        if !Config::SECTIONS.iter().any(|(name, _)| name == section) {
            return Err(unknown_section(&origin, section));
        }
        for (key, value) in content {
            assign(config, &origin, section, key, Given::Toml(value))?;
        }
    }
    Ok(())
}

/// `RONDO_SECTION__KEY`. Other `RONDO_…` variables are not settings, unless they are one but for an underscore.
fn read_variable(config: &mut Config, name: &str, value: &str) -> Result<(), ConfigError> {
    let Some(rest) = name.strip_prefix("RONDO_") else { return Ok(()) };
    let origin = Origin::Env(name.to_owned());
    let lower = rest.to_ascii_lowercase();
    if let Some((section, key)) = lower.split_once("__") {
        return assign(config, &origin, section, key, Given::Text(value));
    }
    let meant = Config::keys().into_iter().find(|doc| lower == format!("{}_{}", doc.section, doc.key));
    meant.map_or(Ok(()), |doc| {
        Err(ConfigError::UnknownSection {
            origin,
            section: rest.to_owned(),
            nearest: Some(variable(doc.section, doc.key)),
        })
    })
}

fn variable(section: &str, key: &str) -> String {
    format!("RONDO_{}__{}", section.to_ascii_uppercase(), key.to_ascii_uppercase())
}

fn assign(config: &mut Config, origin: &Origin, section: &str, key: &str, given: Given<'_>) -> Result<(), ConfigError> {
    config.set(section, key, given).map_err(|rejected| match rejected {
        Rejected::UnknownSection => unknown_section(origin, section),
        Rejected::UnknownKey => {
            let all = Config::keys();
            let here = all.iter().filter(|doc| doc.section == section).map(|doc| doc.key);
            // The key may be right and the section wrong.
            let elsewhere = all.iter().find(|doc| doc.key == key).map(|doc| format!("{}.{}", doc.section, doc.key));
            let nearest = elsewhere.or_else(|| nearest(key, here).map(|near| format!("{section}.{near}")));
            ConfigError::UnknownKey { origin: origin.clone(), section: section.into(), key: key.into(), nearest }
        }
        Rejected::NotAllowed { allowed, secret } => ConfigError::NotAllowed {
            origin: origin.clone(),
            section: section.into(),
            key: key.into(),
            value: match given {
                _ if secret => "[secret]".to_owned(),
                Given::Toml(value) => value.to_string(),
                Given::Text(text) => format!("{text:?}"),
            },
            allowed,
        },
    })
}

fn unknown_section(origin: &Origin, section: &str) -> ConfigError {
    let known = Config::SECTIONS.iter().map(|(name, _)| *name);
    let nearest = nearest(section, known).map(|name| format!("[{name}]"));
    ConfigError::UnknownSection { origin: origin.clone(), section: section.to_owned(), nearest }
}

/// The known name with the fewest edits from `given`, if they are fewer than half its length and at most 8.
fn nearest<'a>(given: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let bound = (given.chars().count() / 2 + 1).min(8);
    known.map(|name| (edits(given, name), name)).filter(|(n, _)| *n <= bound).min().map(|(_, name)| name)
}

/// Levenshtein distance: insertions, deletions and replacements from `a` to `b`.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, to) in row.iter_mut().skip(1).zip(&b) {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = *cell;
            left = replaced.min(diagonal + 1).min(left + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A file that is removed with its handle.
    struct Scratch(PathBuf);
    impl Scratch {
        fn new(text: &str) -> Self {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let n = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("rondo-config-{}-{n}.toml", std::process::id()));
            std::fs::write(&path, text).unwrap();
            Self(path)
        }
    }
    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn of(
        file: &str,
        env: &[(&str, &str)],
        flags: &[(&'static str, &'static str, &'static str)],
    ) -> Result<Config, String> {
        let scratch = Scratch::new(file);
        let sources = Sources {
            file: Some(scratch.0.clone()),
            env: env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            flags: flags
                .iter()
                .map(|(section, key, value)| FlagValue { flag: "--it", section, key, value: (*value).to_owned() })
                .collect(),
            dev: true,
        };
        sources.read().map_err(|e| e.to_string().replace(&scratch.0.display().to_string(), "FILE"))
    }

    #[test]
    fn a_later_layer_wins() {
        let file = "[media]\nfirst_port = 1000\nworkers = 3\npin = false\n";
        let config = of(file, &[], &[]).unwrap();
        assert_eq!((config.media.first_port, config.media.workers, config.media.pin), (1000, Some(3), false));
        let env = [("RONDO_MEDIA__FIRST_PORT", "2000"), ("PATH", "x"), ("RONDO_VECTORS", "/x")];
        assert_eq!(of(file, &env, &[]).unwrap().media.first_port, 2000);
        assert_eq!(of(file, &env, &[("media", "first_port", "3000")]).unwrap().media.first_port, 3000);
    }

    #[test]
    fn lists_and_keys_are_read_from_file_and_environment() {
        let config =
            of("[media]\nadvertise = [\"192.0.2.1\", \"2001:db8::1\"]\n[auth]\nkeys = { a = \"b\" }\n", &[], &[]);
        let config = config.unwrap();
        assert_eq!(config.media.advertise.len(), 2);
        assert_eq!(config.auth.keys.0.len(), 1);
        let env = [("RONDO_AUTH__KEYS", "x: y, z:w"), ("RONDO_MEDIA__ADVERTISE", "192.0.2.1, 192.0.2.2")];
        let config = of("[auth.keys]\na = \"b\"\n", &env, &[]).unwrap();
        assert_eq!(config.auth.keys.0.keys().collect::<Vec<_>>(), ["x", "z"]);
        assert_eq!(config.media.advertise.len(), 2);
    }

    #[test]
    fn an_error_names_place_key_value_and_what_is_allowed() {
        for (file, env, expected) in [
            ("[htpp]\nbind = \"x\"\n", None, "FILE: there is no section [htpp]; did you mean [http]?"),
            ("[http]\nbnid = \"x\"\n", None, "FILE: there is no setting http.bnid; did you mean http.bind?"),
            ("[http]\npin = true\n", None, "FILE: there is no setting http.pin; did you mean media.pin?"),
            (
                "[media]\nfirst_port = 70000\n",
                None,
                "FILE: media.first_port = 70000 is not allowed; allowed is a UDP port from 0 to 65535; 0 lets the system choose",
            ),
            (
                "",
                Some(("RONDO_MEDIA__WORKERS", "0")),
                "environment variable RONDO_MEDIA__WORKERS: media.workers = \"0\" is not allowed; allowed is a number of threads from 1 to 32",
            ),
            (
                "",
                Some(("RONDO_HTTP_BIND", "127.0.0.1:1")),
                "environment variable RONDO_HTTP_BIND: there is no section [HTTP_BIND]; did you mean RONDO_HTTP__BIND?",
            ),
        ] {
            assert_eq!(of(file, env.as_slice(), &[]).unwrap_err(), expected);
        }
        let flag = of("", &[], &[("media", "advertise", "0.0.0.0")]).unwrap_err();
        assert!(flag.starts_with("flag --it: media.advertise = \"0.0.0.0\" is not allowed"), "{flag}");
        assert!(of("a = ", &[], &[]).unwrap_err().starts_with("FILE: not TOML: line 1"));
        let gone = Sources { file: Some("/nowhere/rondo.toml".into()), ..Sources::default() };
        assert!(gone.load().unwrap_err().to_string().contains("/nowhere/rondo.toml"));
    }

    #[test]
    fn a_secret_is_in_no_error() {
        for (file, env) in [
            ("[auth]\nkeys = \"hunter2\"\n", None),
            ("[auth]\nkeys = { a = 5, hunter2 = \"hunter2\" }\n", None),
            ("[auth]\nkeys = { a = \"hunter2\n", None),
            ("", Some(("RONDO_AUTH__KEYS", "hunter2"))),
        ] {
            let error = of(file, env.as_slice(), &[]).unwrap_err();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn distances_are_levenshteins() {
        for (a, b, n) in [("", "", 0), ("a", "", 1), ("", "ab", 2), ("kitten", "sitting", 3), ("bind", "bind", 0)] {
            assert_eq!(edits(a, b), n, "{a} {b}");
        }
    }
}
