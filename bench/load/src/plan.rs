//! Who joins which room, in which order, to publish or to play what.

use reqwest::Url;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::Serialize;
use std::net::IpAddr;
use std::time::Duration;

/// I/O threads of one run: each looks at its sockets 2,000 times a second, whether there is a core for it or not.
const THREADS_MAX: usize = 64;

/// What kind of rooms a run fills.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scenario {
    /// Rooms of two who publish and play each other.
    Call,
    /// Rooms of some who publish and play all others.
    Conference,
    /// Few publish, many play.
    Live,
}

/// What publishers send.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Media {
    /// 50 packets/s of Opus.
    pub audio: bool,
    /// VP8.
    pub video: bool,
    /// Bytes of an audio payload.
    pub audio_bytes: usize,
    /// Bit rate of the video's payloads.
    pub video_kbps: u32,
    /// Frames a second.
    pub video_fps: u32,
    /// Bytes of a video payload.
    pub video_bytes: usize,
    /// Seconds between key frames, besides those asked for.
    pub key_frame_s: f64,
}

impl Default for Media {
    fn default() -> Self {
        Self {
            audio: true,
            video: true,
            audio_bytes: 100,
            video_kbps: 1_200,
            video_fps: 30,
            video_bytes: 1_150,
            key_frame_s: 10.0,
        }
    }
}

/// One run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What kind of rooms.
    pub scenario: Scenario,
    /// The server, such as `http://127.0.0.1:7880`; https as well.
    pub url: Url,
    /// Where it is https: its certificate, or of those who may have signed it, in PEM form.
    pub trusted: Vec<u8>,
    /// Rooms.
    pub rooms: usize,
    /// Publishers of each room.
    pub publishers: usize,
    /// Viewers of each room who publish nothing; `Live` alone has any.
    pub viewers: usize,
    /// What publishers send.
    pub media: Media,
    /// Joins a second, on absolute deadlines.
    pub joins_per_s: f64,
    /// Between the last join and the measurement.
    pub settle: Duration,
    /// The measurement.
    pub hold: Duration,
    /// Offer transport-wide sequence numbers and feedback.
    pub twcc: bool,
    /// Viewers of a room that decrypt; all others count clear headers. `None`: all decrypt.
    pub probes: Option<usize>,
    /// I/O threads.
    pub threads: usize,
    /// Address that the clients' sockets are bound to.
    pub ip: IpAddr,
    /// Process of the server, on this machine, whose CPU and memory are read.
    pub pid: Option<u32>,
    /// What every arbitrary number follows from.
    pub seed: u64,
}

/// One connection to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seat {
    /// Which room, from 0.
    pub room: usize,
    /// Who.
    pub identity: String,
    /// What for.
    pub role: Role,
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Publishes as this publisher of the run, whose streams are [`audio_stream`] and [`video_stream`].
    Publish {
        /// From 0, over all rooms.
        publisher: usize,
    },
    /// Plays the room.
    Play {
        /// Publishers that it shall see.
        publishers: usize,
        /// The publisher that is itself, which it shall not see.
        own: Option<usize>,
        /// Decrypts, and sends feedback.
        probe: bool,
    },
}

/// Stream id of a publisher's audio.
pub fn audio_stream(publisher: usize) -> u32 {
    publisher as u32 * 2
}

/// Stream id of a publisher's video.
pub fn video_stream(publisher: usize) -> u32 {
    publisher as u32 * 2 + 1
}

/// Whether a stream id is a video's.
pub fn is_video(stream: u32) -> bool {
    stream % 2 == 1
}

impl Plan {
    /// Checks what numbers alone can say.
    ///
    /// # Errors
    /// A sentence for whoever chose them.
    pub fn check(&self) -> Result<(), String> {
        let positive = |what: &str, value: f64| {
            if value.is_finite() && value > 0.0 {
                Ok(())
            } else {
                Err(format!("{what} must be more than 0, not {value}"))
            }
        };
        positive("the number of rooms", self.rooms as f64)?;
        positive("the number of publishers", self.publishers as f64)?;
        positive("the number of joins a second", self.joins_per_s)?;
        positive("the time to hold", self.hold.as_secs_f64())?;
        positive("the number of threads", self.threads as f64)?;
        if self.scenario == Scenario::Live {
            positive("the number of viewers", self.viewers as f64)?;
        }
        if self.scenario != Scenario::Live && self.publishers < 2 {
            return Err("a room of one hears nobody: at least 2 people".to_owned());
        }
        if !self.media.audio && !self.media.video {
            return Err("neither audio nor video is left to send".to_owned());
        }
        if self.media.video {
            positive("the video's kbit/s", f64::from(self.media.video_kbps))?;
            positive("the video's frames a second", f64::from(self.media.video_fps))?;
        }
        if self.joins() > 100_000 {
            return Err(format!("{} connections are more than the 100,000 that one run may have", self.joins()));
        }
        if self.threads > THREADS_MAX {
            return Err(format!(
                "{} threads are more than the {THREADS_MAX} that one run may have; one for each core is enough",
                self.threads
            ));
        }
        if !matches!(self.url.scheme(), "http" | "https") {
            return Err(format!("{} is no address to load: it must begin with http:// or https://", self.url));
        }
        if self.url.scheme() == "https" && self.roots().is_empty() {
            return Err(
                "https takes --ca and a file with the server's certificate, or with who signed it, in PEM form \
                        (-----BEGIN CERTIFICATE-----); what this machine trusts is on most in \
                        /etc/ssl/certs/ca-certificates.crt"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// The certificates of `trusted` that can be read.
    pub(crate) fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&self.trusted).flatten());
        roots
    }

    /// Connections that the run asks for.
    pub fn joins(&self) -> usize {
        let per_room = match self.scenario {
            Scenario::Live => self.publishers.saturating_add(self.viewers),
            Scenario::Call | Scenario::Conference => self.publishers.saturating_mul(2),
        };
        per_room.saturating_mul(self.rooms)
    }

    /// The connections in order: room by room, publishers first; the viewers of a live push last, rooms in turn.
    pub fn seats(&self) -> Vec<Seat> {
        let mut seats = Vec::with_capacity(self.joins());
        for room in 0..self.rooms {
            let first = room * self.publishers;
            let all = first..first + self.publishers;
            let who = |publisher: usize| format!("load-{publisher}");
            seats.extend(all.clone().map(|publisher| Seat {
                room,
                identity: who(publisher),
                role: Role::Publish { publisher },
            }));
            if self.scenario != Scenario::Live {
                seats.extend(all.enumerate().map(|(n, publisher)| Seat {
                    room,
                    identity: who(publisher),
                    role: Role::Play { publishers: self.publishers - 1, own: Some(publisher), probe: self.is_probe(n) },
                }));
            }
        }
        let viewers = if self.scenario == Scenario::Live { self.viewers } else { 0 };
        for n in 0..viewers {
            seats.extend((0..self.rooms).map(|room| Seat {
                room,
                identity: format!("load-viewer-{room}-{n}"),
                role: Role::Play { publishers: self.publishers, own: None, probe: self.is_probe(n) },
            }));
        }
        seats
    }

    /// Whether the `n`th viewer of a room decrypts: the probes are spread over the order of joining.
    fn is_probe(&self, n: usize) -> bool {
        let viewers = if self.scenario == Scenario::Live { self.viewers } else { self.publishers };
        self.probes.is_none_or(|probes| n * probes / viewers != (n + 1) * probes / viewers || probes >= viewers)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    pub(crate) fn plan(scenario: Scenario, rooms: usize, publishers: usize, viewers: usize) -> Plan {
        Plan {
            scenario,
            url: "http://127.0.0.1:7880".parse().unwrap(),
            trusted: Vec::new(),
            rooms,
            publishers,
            viewers,
            media: Media::default(),
            joins_per_s: 10.0,
            settle: Duration::ZERO,
            hold: Duration::from_secs(1),
            twcc: true,
            probes: None,
            threads: 1,
            ip: Ipv4Addr::LOCALHOST.into(),
            pid: None,
            seed: 1,
        }
    }

    #[test]
    fn each_scenario_seats_whom_it_says() {
        let call = plan(Scenario::Call, 3, 2, 0);
        let seats = call.seats();
        assert_eq!((seats.len(), call.joins()), (12, 12));
        let second_room: Vec<_> = seats.iter().filter(|seat| seat.room == 1).collect();
        assert_eq!(second_room[0].role, Role::Publish { publisher: 2 });
        assert_eq!(second_room[2].role, Role::Play { publishers: 1, own: Some(2), probe: true });
        assert_eq!(second_room[0].identity, second_room[2].identity);

        let seats = plan(Scenario::Live, 2, 1, 3).seats();
        let rooms: Vec<_> = seats.iter().map(|seat| seat.room).collect();
        assert_eq!(rooms, [0, 1, 0, 1, 0, 1, 0, 1]);
        assert_eq!(seats[2].role, Role::Play { publishers: 1, own: None, probe: true });

        let seats = plan(Scenario::Conference, 1, 5, 0).seats();
        assert!(seats[5..].iter().all(|seat| matches!(seat.role, Role::Play { publishers: 4, .. })));
    }

    #[test]
    fn probes_are_as_many_as_asked_and_spread() {
        for probes in [0, 1, 8, 10, 99, 100, 200] {
            let plan = Plan { probes: Some(probes), ..plan(Scenario::Live, 1, 1, 100) };
            let places: Vec<usize> = (0..100).filter(|n| plan.is_probe(*n)).collect();
            assert_eq!(places.len(), probes.min(100));
            if probes == 8 {
                assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= 12), "{places:?}");
            }
        }
    }

    #[test]
    fn what_cannot_be_is_a_sentence() {
        let of = |change: fn(&mut Plan)| {
            let mut plan = plan(Scenario::Call, 1, 2, 0);
            change(&mut plan);
            plan.check()
        };
        assert_eq!(of(|_| {}), Ok(()));
        for (change, word) in [
            ((|p| p.rooms = 0) as fn(&mut Plan), "rooms"),
            (|p| p.publishers = 1, "room of one"),
            (|p| p.joins_per_s = f64::NAN, "joins a second"),
            (|p| p.hold = Duration::ZERO, "hold"),
            (|p| p.rooms = usize::MAX, "100,000"),
            (|p| p.threads = 0, "threads"),
            (|p| p.threads = 65, "more than the 64"),
            (|p| p.url = "https://127.0.0.1".parse().unwrap(), "--ca"),
            (|p| p.url = "ftp://127.0.0.1".parse().unwrap(), "http:// or https://"),
            (|p| (p.media.audio, p.media.video) = (false, false), "neither"),
        ] {
            assert!(of(change).unwrap_err().contains(word), "{word}");
        }
    }
}
