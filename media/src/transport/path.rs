//! Where the peer is: addresses it has proven by authenticated checks, and the one it nominated.
//!
//! str0m answers the checks; this looks on, because str0m does not tell which pair it sends on, and because a
//! lite agent has to follow a peer that moves to a path of lower priority (from Wi-Fi to cellular).

use super::DatagramRefused;
use super::peek::Stun;
use std::net::SocketAddr;

/// Addresses that one peer may prove over its life. str0m keeps a candidate for each.
const ADDRESSES_MAX: usize = 256;

/// What an answered check changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Move {
    /// Nothing.
    Stays,
    /// The first nomination: media can reach this address.
    First(SocketAddr),
    /// Another address from now on.
    To(SocketAddr),
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Path {
    proven: Vec<SocketAddr>,
    nominated: Option<(SocketAddr, u32)>,
    /// Nominated last, while the current one was not since.
    rival: Option<SocketAddr>,
    check: Option<Check>,
}

#[derive(Debug)]
struct Check {
    stun: Stun,
    from: SocketAddr,
    answered: bool,
}

impl Path {
    /// The nominated address.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        self.nominated.map(|(peer, _)| peer)
    }

    /// Whether an authenticated check came from there.
    pub(super) fn has_proven(&self, from: SocketAddr) -> bool {
        self.peer() == Some(from) || self.proven.contains(&from)
    }

    /// A check is about to be handed to str0m.
    pub(super) fn begin_check(&mut self, from: SocketAddr, stun: Stun) -> Result<(), DatagramRefused> {
        if self.proven.len() >= ADDRESSES_MAX && !self.has_proven(from) {
            return Err(DatagramRefused::TooManyAddresses { limit: ADDRESSES_MAX });
        }
        self.check = Some(Check { stun, from, answered: false });
        Ok(())
    }

    /// str0m sends this STUN message: a success response to the check says that it was authentic.
    pub(super) fn answered(&mut self, response: &[u8]) {
        if let (Some(check), Some(response)) = (&mut self.check, Stun::parse(response)) {
            check.answered |= response.kind == Stun::BINDING_SUCCESS && response.transaction == check.stun.transaction;
        }
    }

    /// What the check has changed; `None`: it was not authentic.
    ///
    /// A nomination of higher priority is followed at once, one of lower priority when it is repeated without the
    /// current address being nominated in between: a peer that nominates all its pairs (RFC 5245 §8.1.1.2) stays on
    /// its best, one that has moved (RFC 8445 §8.1.1) is followed within two checks.
    pub(super) fn end_check(&mut self) -> Option<Move> {
        let Check { stun, from, .. } = self.check.take().filter(|check| check.answered)?;
        if !self.proven.contains(&from) {
            self.proven.push(from);
        }
        if !stun.use_candidate {
            return Some(Move::Stays);
        }
        let rival = self.rival.replace(from);
        let moved = match self.nominated {
            None => Move::First(from),
            Some((peer, _)) if peer == from => {
                self.rival = None;
                Move::Stays
            }
            Some((_, priority)) if stun.priority > priority || rival == Some(from) => Move::To(from),
            Some(_) => Move::Stays,
        };
        match moved {
            Move::First(_) | Move::To(_) => {
                self.nominated = Some((from, stun.priority));
                self.rival = None;
            }
            Move::Stays => {}
        }
        Some(moved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], n))
    }

    /// An authenticated check.
    fn check(path: &mut Path, from: u16, priority: u32, use_candidate: bool) -> Option<Move> {
        let stun = Stun { kind: Stun::BINDING_REQUEST, transaction: [7; 12], use_candidate, priority };
        path.begin_check(address(from), stun).unwrap();
        let mut response = vec![1, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42];
        response.extend([7; 12]);
        path.answered(&response);
        path.end_check()
    }

    #[test]
    fn the_first_nomination_connects_and_a_better_one_moves() {
        let mut path = Path::default();
        assert_eq!(check(&mut path, 1, 100, false), Some(Move::Stays));
        assert!(path.has_proven(address(1)) && path.peer().is_none());
        assert_eq!(check(&mut path, 1, 100, true), Some(Move::First(address(1))));
        assert_eq!(check(&mut path, 2, 200, true), Some(Move::To(address(2))));
        assert_eq!(path.peer(), Some(address(2)));
    }

    #[test]
    fn a_peer_that_nominates_every_pair_stays_on_its_best() {
        let mut path = Path::default();
        check(&mut path, 1, 200, true);
        for _ in 0..10 {
            assert_eq!(check(&mut path, 2, 100, true), Some(Move::Stays));
            assert_eq!(check(&mut path, 1, 200, true), Some(Move::Stays));
        }
    }

    #[test]
    fn a_peer_that_moves_to_a_worse_path_is_followed() {
        let mut path = Path::default();
        check(&mut path, 1, 200, true);
        assert_eq!(check(&mut path, 2, 100, true), Some(Move::Stays));
        assert_eq!(check(&mut path, 2, 100, true), Some(Move::To(address(2))));
    }

    #[test]
    fn a_check_without_answer_proves_nothing() {
        let mut path = Path::default();
        let stun = Stun { kind: 1, transaction: [7; 12], use_candidate: true, priority: 1 };
        path.begin_check(address(1), stun).unwrap();
        assert_eq!(path.end_check(), None);
        assert!(!path.has_proven(address(1)));
    }

    #[test]
    fn addresses_are_bounded() {
        let mut path = Path::default();
        for n in 0..ADDRESSES_MAX {
            check(&mut path, u16::try_from(n).unwrap(), 1, false);
        }
        let stun = Stun { kind: 1, transaction: [7; 12], use_candidate: true, priority: 1 };
        let refused = path.begin_check(address(9999), stun);
        assert_eq!(refused, Err(DatagramRefused::TooManyAddresses { limit: ADDRESSES_MAX }));
        assert!(path.begin_check(address(1), stun).is_ok());
    }
}
