//! Values of single attributes. Every function is total: it gives `None` for what it cannot read.

/// Header extensions this server can make use of (RFC 8285; URIs by their registrants).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extension {
    /// RFC 9143 §15.
    Mid,
    /// RFC 8852 §4.
    Rid,
    /// RFC 8852 §4.
    RepairedRid,
    /// 24-bit send time of libwebrtc.
    AbsSendTime,
    /// draft-holmer-rmcat-transport-wide-cc-extensions-01.
    Twcc,
    /// RFC 6464.
    AudioLevel,
}

impl Extension {
    const ALL: [Extension; 6] = [
        Extension::Mid,
        Extension::Rid,
        Extension::RepairedRid,
        Extension::AbsSendTime,
        Extension::Twcc,
        Extension::AudioLevel,
    ];

    /// The URI in `a=extmap`.
    pub(crate) fn uri(self) -> &'static str {
        match self {
            Extension::Mid => "urn:ietf:params:rtp-hdrext:sdes:mid",
            Extension::Rid => "urn:ietf:params:rtp-hdrext:sdes:rtp-stream-id",
            Extension::RepairedRid => "urn:ietf:params:rtp-hdrext:sdes:repaired-rtp-stream-id",
            Extension::AbsSendTime => "http://www.webrtc.org/experiments/rtp-hdrext/abs-send-time",
            Extension::Twcc => "http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01",
            Extension::AudioLevel => "urn:ietf:params:rtp-hdrext:ssrc-audio-level",
        }
    }
}

/// Who opens the DTLS connection (RFC 8842 §5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Setup {
    Active,
    Passive,
    ActPass,
    HoldConn,
}

pub(super) fn setup(value: &str) -> Option<Setup> {
    [("active", Setup::Active), ("passive", Setup::Passive), ("actpass", Setup::ActPass), ("holdconn", Setup::HoldConn)]
        .into_iter()
        .find_map(|(name, setup)| value.eq_ignore_ascii_case(name).then_some(setup))
}

/// Which way media flows, seen from who wrote the description (RFC 3264 §5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    SendRecv,
    SendOnly,
    RecvOnly,
    Inactive,
}

impl Direction {
    pub(super) fn parse(name: &str) -> Option<Direction> {
        match name {
            "sendrecv" => Some(Direction::SendRecv),
            "sendonly" => Some(Direction::SendOnly),
            "recvonly" => Some(Direction::RecvOnly),
            "inactive" => Some(Direction::Inactive),
            _ => None,
        }
    }
    pub(super) fn sends(self) -> bool {
        matches!(self, Direction::SendRecv | Direction::SendOnly)
    }
    pub(super) fn receives(self) -> bool {
        matches!(self, Direction::SendRecv | Direction::RecvOnly)
    }
    pub(super) fn name(self) -> &'static str {
        match self {
            Direction::SendRecv => "sendrecv",
            Direction::SendOnly => "sendonly",
            Direction::RecvOnly => "recvonly",
            Direction::Inactive => "inactive",
        }
    }
}

/// A certificate's digest (RFC 8122 §5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    /// Hash function's name in lower case.
    pub(crate) hash: String,
    /// The digest.
    pub(crate) digest: Vec<u8>,
}

/// `sha-256 AB:CD:…`
pub(super) fn fingerprint(value: &str) -> Option<Fingerprint> {
    let (hash, hex) = value.trim().split_once(' ')?;
    // The longest digest of RFC 8122 is 64 bytes.
    let digest: Vec<u8> = hex
        .trim()
        .split(':')
        .take(65)
        .map(|pair| if pair.len() == 2 { u8::from_str_radix(pair, 16).ok() } else { None })
        .collect::<Option<_>>()?;
    Some(Fingerprint { hash: hash.to_ascii_lowercase(), digest })
}

/// An encoding of a payload type (RFC 8866 §6.6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RtpMap {
    pub(super) pt: u8,
    /// Encoding name in lower case: names are compared without regard to case.
    pub(super) encoding: String,
    pub(super) clock_hz: u32,
    pub(super) channels: Option<u8>,
}

/// A payload type: 0–127.
pub(super) fn payload_type(text: &str) -> Option<u8> {
    text.parse().ok().filter(|pt| *pt < 128)
}

/// `111 opus/48000/2`
pub(super) fn rtpmap(value: &str) -> Option<RtpMap> {
    let (pt, rest) = value.trim().split_once(' ')?;
    let mut parts = rest.trim().split('/');
    let encoding = parts.next()?.trim().to_ascii_lowercase();
    let clock_hz = parts.next()?.trim().parse().ok()?;
    let channels = parts.next().and_then(|c| c.trim().parse().ok());
    Some(RtpMap { pt: payload_type(pt)?, encoding, clock_hz, channels })
}

/// `96 rest` of `a=fmtp`.
pub(super) fn fmtp(value: &str) -> Option<(u8, &str)> {
    let value = value.trim();
    match value.split_once(' ') {
        Some((pt, rest)) => Some((payload_type(pt)?, rest.trim())),
        None => Some((payload_type(value)?, "")),
    }
}

/// `96 nack pli` or `* nack pli` of `a=rtcp-fb` (RFC 4585 §4.2); no payload type stands for all.
pub(super) fn feedback(value: &str) -> Option<(Option<u8>, String)> {
    let (pt, what) = value.trim().split_once(' ')?;
    let what = what.split_whitespace().collect::<Vec<_>>().join(" ").to_ascii_lowercase();
    match pt {
        "*" => Some((None, what)),
        pt => Some((Some(payload_type(pt)?), what)),
    }
}

/// `4/sendonly urn:… params` of `a=extmap` (RFC 8285 §8); only extensions this server knows.
pub(super) fn extmap(value: &str) -> Option<(u8, Extension)> {
    let mut words = value.split_whitespace();
    let id = words.next()?.split('/').next()?.parse().ok()?;
    let uri = words.next()?;
    Extension::ALL.into_iter().find(|e| e.uri() == uri).map(|e| (id, e))
}

/// Parameters `key=value` separated by `;` (RFC 8866 §6.15). Keys in lower case; empty keys are left out.
pub(super) fn parameters(text: &str) -> impl Iterator<Item = (String, &str)> {
    text.split(';').filter_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let key = key.trim();
        (!key.is_empty()).then(|| (key.to_ascii_lowercase(), value.trim()))
    })
}

/// The layers that are sent, in their order: the first alternative of each, paused or not (RFC 8853 §5.1). Drafts before
/// it (draft-ietf-mmusic-sdp-simulcast-03 §6) put `rid=` before the list.
pub(super) fn simulcast_send(value: &str) -> Vec<&str> {
    let mut words = value.split_whitespace();
    while let Some(direction) = words.next() {
        let Some(list) = words.next() else { break };
        if direction == "send" {
            return list
                .trim_start_matches("rid=")
                .split(';')
                .filter_map(|layer| layer.split(',').next())
                .map(|rid| rid.trim_start_matches('~'))
                .filter(|rid| !rid.is_empty())
                .collect();
        }
    }
    Vec::new()
}

/// Whether an answer may repeat `text`: 1 to 255 visible ASCII characters, which a token is (RFC 8866 §9).
pub(super) fn is_word(text: &str) -> bool {
    (1..=255).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
}

/// Whether `value` (without `a=`, with or without `candidate:`) has the shape of RFC 8839 §5.1: foundation,
/// component, transport, priority, address, port, `typ`, type. The address may be any name: browsers hide
/// theirs behind one in `.local`.
pub(crate) fn check_candidate(value: &str) -> bool {
    let value = value.strip_prefix("a=").unwrap_or(value);
    let value = value.strip_prefix("candidate:").unwrap_or(value);
    let mut words = value.split_whitespace();
    let mut next = || words.next();
    next().is_some_and(|foundation| foundation.len() <= 32)
        && next().is_some_and(|component| component.parse::<u16>().is_ok())
        && next().is_some()
        && next().is_some_and(|priority| priority.parse::<u32>().is_ok())
        && next().is_some_and(|address| address.len() <= 255)
        && next().is_some_and(|port| port.parse::<u16>().is_ok())
        && next() == Some("typ")
        && next().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fmtp_parameters_tolerate_spaces_and_empty_values() {
        let got: Vec<_> = parameters(" profile-level-id=; Level-Id = 180 ;;tx-mode=SRST; flag").collect();
        assert_eq!(
            got,
            [
                ("profile-level-id".to_owned(), ""),
                ("level-id".to_owned(), "180"),
                ("tx-mode".to_owned(), "SRST"),
                ("flag".to_owned(), "")
            ]
        );
    }

    #[test]
    fn simulcast_layers_are_read_in_either_order() {
        // The examples of RFC 8853 §5.1.
        assert_eq!(simulcast_send("send 1,2,3;~4,~5 recv 6;~7,~8"), ["1", "4"]);
        assert_eq!(simulcast_send("recv 1;4,5 send 6;7"), ["6", "7"]);
        assert_eq!(simulcast_send(" send rid=q;~h;f"), ["q", "h", "f"], "as before the RFC");
        assert!(simulcast_send("recv 1;4").is_empty());
        assert!(simulcast_send("send").is_empty());
    }

    #[test]
    fn candidates_of_any_address_are_read() {
        for good in [
            "candidate:1 1 udp 2130706431 192.0.2.1 9000 typ host",
            "a=candidate:1 1 UDP 2130706431 2001:db8::1 9000 typ srflx raddr :: rport 0 generation 0",
            "candidate:0 1 udp 1 4f7c8a52-1b2c-4e5f-9a0b-1c2d3e4f5a6b.local 50000 typ host",
        ] {
            assert!(check_candidate(good), "{good}");
        }
        for bad in
            ["", "candidate:", "candidate:1 1 udp x 192.0.2.1 9 typ host", "candidate:1 1 udp 1 192.0.2.1 9 host"]
        {
            assert!(!check_candidate(bad), "{bad}");
        }
    }

    #[test]
    fn fingerprints_are_read() {
        assert_eq!(fingerprint("SHA-256 0a:FF"), Some(Fingerprint { hash: "sha-256".into(), digest: vec![10, 255] }));
        for bad in ["sha-256", "sha-256 0", "sha-256 GG", "sha-256 0A:", ""] {
            assert_eq!(fingerprint(bad), None, "{bad}");
        }
    }
}
