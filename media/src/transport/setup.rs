//! Turning what was agreed on into a str0m instance.

use super::Role;
use super::streams::Streams;
use crate::codec::{Codec, Kind};
use crate::sdp::{Accepted, Agreed, Extension, SdpRefusal};
use str0m::crypto::Fingerprint;
use str0m::format::{Codec as Str0mCodec, FormatParams};
use str0m::media::{Frequency, MediaKind, Mid};
use str0m::rtp::Extension as Str0mExtension;
use str0m::{IceCreds, Rtc, RtcConfig};

/// str0m's name of a section. Its mids hold 16 characters; ours may have 255 and stay outside.
pub(super) fn mid_of(section: usize) -> Mid {
    Mid::from(section.to_string().as_str())
}

fn active(agreed: &Agreed) -> impl Iterator<Item = (usize, &Accepted)> {
    agreed.media().enumerate().filter_map(|(index, accepted)| Some((index, accepted.filter(|a| a.is_active())?)))
}

/// Payload types and header extensions of a publisher. A playing transport has none: see the module `webrtc`.
pub(super) fn config(agreed: &Agreed, role: Role) -> RtcConfig {
    let mut config = RtcConfig::new()
        .clear_codecs()
        .clear_extension_map()
        .set_rtp_mode(true)
        .set_ice_lite(true)
        .set_stats_interval(None);
    match role {
        Role::Play => return config,
        Role::Publish => {}
    }
    let mut formats: Vec<(u8, Option<u8>, Codec)> = Vec::new();
    for format in active(agreed).flat_map(|(_, accepted)| accepted.section_formats()) {
        match formats.iter_mut().find(|(pt, ..)| *pt == format.pt) {
            None => formats.push((format.pt, format.rtx_pt, format.format.codec)),
            Some((_, rtx_pt, _)) => *rtx_pt = rtx_pt.or(format.rtx_pt),
        }
    }
    for (pt, rtx_pt, codec) in formats {
        let (name, rate, channels) = match codec {
            Codec::Opus => (Str0mCodec::Opus, Frequency::FORTY_EIGHT_KHZ, Some(2)),
            Codec::Vp8 => (Str0mCodec::Vp8, Frequency::NINETY_KHZ, None),
            Codec::Vp9 => (Str0mCodec::Vp9, Frequency::NINETY_KHZ, None),
            Codec::H264 => (Str0mCodec::H264, Frequency::NINETY_KHZ, None),
            Codec::Av1 => (Str0mCodec::Av1, Frequency::NINETY_KHZ, None),
        };
        let rtx_pt = rtx_pt.map(Into::into);
        config.codec_config().add_config(pt.into(), rtx_pt, name, rate, channels, FormatParams::default());
    }
    for (id, extension) in active(agreed).flat_map(|(_, accepted)| accepted.extensions.iter().copied()) {
        config = match extension {
            Extension::Twcc => config.set_extension(id, Str0mExtension::TransportSequenceNumber),
            Extension::AudioLevel => config.set_extension(id, Str0mExtension::AudioLevel),
            // Sections are told apart in `streams`; nothing here reads the send time.
            Extension::Mid | Extension::Rid | Extension::RepairedRid | Extension::AbsSendTime => config,
        };
    }
    config
}

/// Gives the instance its peer, its role and, for a publisher, its sections.
pub(super) fn start(rtc: &mut Rtc, agreed: &Agreed, role: Role, streams: &mut Streams) -> Result<(), SdpRefusal> {
    let mut api = rtc.direct_api();
    api.set_ice_controlling(false);
    api.set_remote_ice_credentials(IceCreds { ufrag: agreed.remote_ufrag.clone(), pass: agreed.remote_pwd.clone() });
    api.set_remote_fingerprint(Fingerprint { hash_func: "sha-256".to_owned(), bytes: agreed.fingerprint.clone() });
    api.start_dtls(agreed.dtls_client).map_err(|_| SdpRefusal::Unsupported("DTLS cannot be started"))?;
    match role {
        Role::Play => return Ok(()),
        Role::Publish => {}
    }
    for (index, accepted) in agreed.media().enumerate() {
        streams.add_section(accepted);
        let Some(accepted) = accepted.filter(|a| a.is_active()) else { continue };
        let kind = match accepted.kind {
            Kind::Audio => MediaKind::Audio,
            Kind::Video => MediaKind::Video,
        };
        api.declare_media(mid_of(index), kind);
        let nack = accepted.formats.iter().any(|f| f.feedback.nack);
        for declared in &accepted.declared {
            if streams.declare(index, *declared) {
                let repair = declared.repair.map(Into::into);
                let stream = api.expect_stream_rx(declared.ssrc.into(), repair, mid_of(index), None);
                stream.suppress_nack(!nack);
            }
        }
    }
    if active(agreed).any(|(_, accepted)| accepted.twcc()) {
        api.enable_twcc_feedback();
    }
    Ok(())
}

/// By section: key frames are asked for by Full Intra Request, as Picture Loss Indication was not agreed on.
/// A peer that agreed on neither gets PLI: what it does not know it ignores (RFC 4585 §3.6.1).
pub(super) fn by_fir(agreed: &Agreed) -> Vec<bool> {
    let any = |accepted: Option<&Accepted>| {
        let feedback = || accepted.into_iter().flat_map(|a| a.formats.iter().map(|f| f.feedback));
        feedback().any(|f| f.fir) && !feedback().any(|f| f.pli)
    };
    agreed.media().map(any).collect()
}

/// By section: the peer knows REMB.
pub(super) fn takes_remb(agreed: &Agreed) -> Vec<bool> {
    let any = |accepted: Option<&Accepted>| accepted.is_some_and(|a| a.formats.iter().any(|f| f.feedback.remb));
    agreed.media().map(any).collect()
}
