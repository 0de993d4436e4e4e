//! SRTP and SRTCP of a peer that may lie: only what was sealed with the keys opens, once.

use arbitrary::{Arbitrary, Unstructured};
use rondo_media::send::Protection;
use rondo_media::transport::{SrtpKeys, SrtpProfile};
use rondo_media::wire::rtp::RtpHeader;

#[derive(Debug, Arbitrary)]
struct Script<'a> {
    profile: u8,
    steps: Vec<Step<'a>>,
}

#[derive(Debug, Arbitrary)]
enum Step<'a> {
    RawRtp(&'a [u8]),
    RawRtcp(&'a [u8]),
    Rtp { ssrc: u8, seq: u16, payload: &'a [u8], spoil: Option<Spoil> },
    Rtcp { ssrc: u8, body: &'a [u8], spoil: Option<Spoil> },
}

/// One byte changed, or the end cut.
#[derive(Debug, Arbitrary)]
struct Spoil {
    at: u16,
    with: u8,
    cut: bool,
}

impl Spoil {
    /// Whether anything has changed.
    fn apply(&self, datagram: &mut Vec<u8>) -> bool {
        let at = usize::from(self.at) % datagram.len();
        if self.cut {
            datagram.truncate(at);
            return true;
        }
        datagram[at] ^= self.with;
        self.with != 0
    }
}

/// Both ends of one transport.
fn pair(profile: SrtpProfile) -> (Protection, Protection) {
    let (key, salt) = (profile.key_len(), profile.salt_len());
    let (a, b) = ((vec![0xa1; key], vec![0xa2; salt]), (vec![0xb1; key], vec![0xb2; salt]));
    let keys = |send: &(Vec<u8>, Vec<u8>), receive: &(Vec<u8>, Vec<u8>)| SrtpKeys {
        profile,
        send_key: send.0.clone(),
        send_salt: send.1.clone(),
        receive_key: receive.0.clone(),
        receive_salt: receive.1.clone(),
    };
    let [ours, theirs] = [keys(&a, &b), keys(&b, &a)].map(|keys| Protection::new(&keys).expect("keys that fit"));
    (ours, theirs)
}

/// What was not sealed with the keys, or was changed, or came before, does not open; everything else does.
pub fn open(data: &[u8]) {
    let Ok(script) = Script::arbitrary_take_rest(Unstructured::new(data)) else { return };
    let profiles = [SrtpProfile::AeadAes256Gcm, SrtpProfile::AeadAes128Gcm, SrtpProfile::Aes128CmSha1_80];
    let (mut ours, mut theirs) = pair(profiles[usize::from(script.profile) % profiles.len()]);
    let mut plain = Protection::Plain;
    for step in &script.steps {
        match step {
            Step::RawRtp(bytes) => {
                assert!(ours.open_rtp(&mut bytes.to_vec()).is_err(), "nobody guesses a tag");
                if let Ok(opened) = plain.open_rtp(&mut bytes.to_vec()) {
                    assert!(opened.header_len <= opened.len && opened.len <= bytes.len());
                }
            }
            Step::RawRtcp(bytes) => assert!(ours.open_rtcp(&mut bytes.to_vec()).is_err(), "nobody guesses a tag"),
            Step::Rtp { ssrc, seq, payload, spoil } => {
                rtp(&mut ours, &mut theirs, u32::from(*ssrc), *seq, payload, spoil.as_ref());
            }
            Step::Rtcp { ssrc, body, spoil } => {
                rtcp(&mut ours, &mut theirs, u32::from(*ssrc), body, spoil.as_ref());
            }
        }
    }
}

fn rtp(ours: &mut Protection, theirs: &mut Protection, ssrc: u32, seq: u16, payload: &[u8], spoil: Option<&Spoil>) {
    let mut packet = Vec::new();
    let header = RtpHeader { marker: false, pt: 96, seq, rtp_time: 7, ssrc };
    header.emit(&[(1, b"0")], payload, 0, &mut packet).expect("a header that can be written");
    let (clear, header_len) = (packet.clone(), packet.len() - payload.len());
    theirs.seal_rtp(&mut packet, 0, header_len, ssrc, u64::from(seq)).expect("sealed");
    let spoilt = spoil.is_some_and(|spoil| spoil.apply(&mut packet));
    let mut opened_packet = packet.clone();
    // Refused is right, too: a number far behind the highest of its SSRC is of another cycle, or before the window.
    if let Ok(opened) = ours.open_rtp(&mut opened_packet) {
        assert!(!spoilt, "a changed packet was taken");
        assert_eq!((opened.header_len, &opened_packet[..opened.len]), (header_len, &clear[..]));
        assert!(ours.open_rtp(&mut packet).is_err(), "a replayed packet was taken");
    }
}

fn rtcp(ours: &mut Protection, theirs: &mut Protection, ssrc: u32, body: &[u8], spoil: Option<&Spoil>) {
    let mut compound = vec![0x80, 201, 0, 1];
    compound.extend(ssrc.to_be_bytes());
    compound.extend(body);
    let clear = compound.clone();
    theirs.seal_rtcp(&mut compound, 0).expect("sealed");
    let spoilt = spoil.is_some_and(|spoil| spoil.apply(&mut compound));
    let mut opened = compound.clone();
    match ours.open_rtcp(&mut opened) {
        Ok(len) => {
            assert!(!spoilt, "a changed compound was taken");
            assert_eq!(&opened[..len], &clear[..]);
            assert!(ours.open_rtcp(&mut compound).is_err(), "a replayed compound was taken");
        }
        // Indices only grow: what was not changed is refused only where there are too many sources.
        Err(error) => assert!(spoilt || error.to_string().contains("sources"), "{error}"),
    }
}
