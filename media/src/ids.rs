//! The nouns' names: rooms and identities as people choose them, ids as the server makes them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A source of random bytes, handed in so that a simulation can be repeated from its seed.
pub trait Random {
    /// Fills `out` with bytes that nobody can guess (outside a simulation).
    fn fill(&mut self, out: &mut [u8]);
}

/// Why a room name or an identity was refused: 1–128 characters of `[A-Za-z0-9._~@:-]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// No character at all.
    #[error("is empty")]
    Empty,
    /// More than 128 characters.
    #[error("has {0} characters, at most 128 are allowed")]
    TooLong(usize),
    /// A character outside the allowed set.
    #[error("holds {0:?}; allowed are letters, digits and . _ ~ @ : -")]
    Char(char),
    /// A name that a path of the server uses.
    #[error("is reserved")]
    Reserved,
}

fn checked(text: &str) -> Result<Arc<str>, BadName> {
    if text.is_empty() {
        return Err(BadName::Empty);
    }
    if let Some(bad) = text.chars().find(|c| !(c.is_ascii_alphanumeric() || "._~@:-".contains(*c))) {
        return Err(BadName::Char(bad));
    }
    if text.len() > 128 {
        return Err(BadName::TooLong(text.len()));
    }
    Ok(text.into())
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $reserved:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);
        impl $name {
            /// The characters.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl FromStr for $name {
            type Err = BadName;
            fn from_str(text: &str) -> Result<Self, BadName> {
                let reserved: &[&str] = $reserved;
                if reserved.contains(&text) {
                    return Err(BadName::Reserved);
                }
                checked(text).map(Self)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
    };
}

name!(
    /// A room's name, chosen by whoever opens it.
    RoomName,
    &["v1"]
);
name!(
    /// Who somebody is in a room; at most one participant of a room has it.
    Identity,
    &[]
);

/// Characters of an id after its prefix: 62^12 is about 71 bits.
const ID_CHARS: usize = 12;
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name([u8; ID_CHARS]);
        impl $name {
            /// Makes an id that cannot be guessed.
            pub fn generate(random: &mut dyn Random) -> Self {
                let mut out = [0u8; ID_CHARS];
                let mut have = 0;
                while have < ID_CHARS {
                    let mut bytes = [0u8; 16];
                    random.fill(&mut bytes);
                    // 248 is the largest multiple of 62 in a byte: no character is likelier than another.
                    for byte in bytes.into_iter().filter(|b| *b < 248) {
                        if have < ID_CHARS {
                            out[have] = ALPHABET[usize::from(byte % 62)];
                            have += 1;
                        }
                    }
                }
                Self(out)
            }
        }
        impl FromStr for $name {
            type Err = BadId;
            fn from_str(text: &str) -> Result<Self, BadId> {
                let rest = text.strip_prefix($prefix).ok_or(BadId)?.as_bytes();
                let chars: [u8; ID_CHARS] = rest.try_into().map_err(|_| BadId)?;
                if chars.iter().all(u8::is_ascii_alphanumeric) { Ok(Self(chars)) } else { Err(BadId) }
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($prefix)?;
                f.write_str(std::str::from_utf8(&self.0).unwrap_or_default())
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

/// A text that is no id of the kind asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not an id of this server")]
pub struct BadId;

id!(
    /// One life of a room.
    RoomId,
    "RM_"
);
id!(
    /// One stay of one participant in one room.
    SessionId,
    "PA_"
);
id!(
    /// One PeerConnection of a session.
    TransportId,
    "TP_"
);
id!(
    /// One published medium of a session.
    TrackId,
    "TR_"
);

#[cfg(test)]
mod tests {
    use super::*;

    struct Counting(u8);
    impl Random for Counting {
        fn fill(&mut self, out: &mut [u8]) {
            for b in out {
                *b = self.0;
                self.0 = self.0.wrapping_add(37);
            }
        }
    }

    #[test]
    fn names_hold_what_interfaces_2_says() {
        for good in ["a", "standup", "Ann.B_~@:-9", &"x".repeat(128)] {
            assert_eq!(good.parse::<RoomName>().map(|n| n.to_string()), Ok(good.to_owned()));
        }
        assert_eq!("".parse::<Identity>(), Err(BadName::Empty));
        assert_eq!("x".repeat(129).parse::<Identity>(), Err(BadName::TooLong(129)));
        for bad in ['/', ' ', '%', 'é', '\n', '?', '#', '\0'] {
            assert_eq!(format!("a{bad}").parse::<RoomName>(), Err(BadName::Char(bad)));
        }
        assert_eq!("v1".parse::<RoomName>(), Err(BadName::Reserved));
        assert!("v1".parse::<Identity>().is_ok());
    }

    #[test]
    fn an_id_reads_back_and_has_prefix_and_length() {
        let id = TrackId::generate(&mut Counting(3));
        let text = id.to_string();
        assert_eq!(text.len(), 15);
        assert!(text.starts_with("TR_"));
        assert_eq!(text.parse(), Ok(id));
        assert_eq!(text.parse::<RoomId>(), Err(BadId));
        for bad in ["TR_", "TR_short", "TR_waytoolongforanid", "TR_abcdefghijk/", ""] {
            assert_eq!(bad.parse::<TrackId>(), Err(BadId), "{bad}");
        }
    }
}
