//! Our end of ICE: a lite agent (RFC 8445 §2.5) that answers checks and learns from them where the peer is.
//!
//! It is our own because of what a long call needs and str0m's does not do: two ICE sessions while a restart is under
//! way, a bounded memory of addresses however often the peer moves, and following a peer to a path of lower priority.
//!
//! A lite agent sends no checks. The peer's password and candidates are therefore of no use to it: an address counts
//! once an authentic check has come from it, and media goes to the one that the peer nominated.

use super::DatagramRefused;
use crate::wire::stun::{self, BindingRequest};
use ring::hmac;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use str0m::IceCreds;

/// Addresses from which DTLS and new streams are taken: those that the peer's checks came from last.
const ADDRESSES_MAX: usize = 8;
/// Restarts that may follow each other at once; then one in each [`RESTART_EVERY`].
const RESTARTS_AT_ONCE: u32 = 5;
/// See [`RESTARTS_AT_ONCE`].
const RESTART_EVERY: Duration = Duration::from_secs(3);

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

/// What came of a check that was authentic.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answered {
    /// Goes back to where the check came from.
    pub(super) reply: Vec<u8>,
    pub(super) moved: Move,
    /// A restart is complete: checks with this ufrag of ours are taken no longer.
    pub(super) retired: Option<String>,
}

/// One ICE session: what a restart changes (RFC 8445 §9).
struct Session {
    local: IceCreds,
    key: hmac::Key,
    remote_ufrag: String,
}

/// See the module.
pub(super) struct Agent {
    current: Session,
    /// Begun by a restart; takes over when the peer nominates an address in it.
    next: Option<Session>,
    /// Checked last, last.
    proven: Vec<SocketAddr>,
    nominated: Option<Nominated>,
    /// Nominated last, while the current one was not since.
    rival: Option<SocketAddr>,
    restarts: u32,
    restarts_since: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Nominated {
    peer: SocketAddr,
    /// Our address that the check was sent to.
    to: SocketAddr,
    priority: u32,
}

/// Too many restarts; the next one is possible after this time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooOften(pub(super) Duration);

impl Session {
    fn new(local: IceCreds, remote_ufrag: String) -> Self {
        Self { key: stun::key(&local.pass), local, remote_ufrag }
    }
}

impl Agent {
    /// `local`: what the answer tells the peer; `remote_ufrag`: what the offer told us.
    pub(super) fn new(local: IceCreds, remote_ufrag: String) -> Self {
        Self {
            current: Session::new(local, remote_ufrag),
            next: None,
            proven: Vec::with_capacity(ADDRESSES_MAX),
            nominated: None,
            rival: None,
            restarts: 0,
            restarts_since: None,
        }
    }

    /// Our credentials of the newest ICE session.
    pub(super) fn local(&self) -> &IceCreds {
        &self.newest().local
    }

    /// The peer's ufrag of the newest ICE session.
    pub(super) fn remote_ufrag(&self) -> &str {
        &self.newest().remote_ufrag
    }

    /// Our credentials and the peer's ufrag of the ICE session that the last nomination was made in. While a restart
    /// is under way that is not the newest.
    pub(super) fn current(&self) -> (&IceCreds, &str) {
        (&self.current.local, &self.current.remote_ufrag)
    }

    fn newest(&self) -> &Session {
        self.next.as_ref().unwrap_or(&self.current)
    }

    /// The nominated address.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        self.nominated.map(|nominated| nominated.peer)
    }

    /// Whether an authentic check came from there, lately.
    pub(super) fn has_proven(&self, from: SocketAddr) -> bool {
        self.peer() == Some(from) || self.proven.contains(&from)
    }

    /// The peer begins a new ICE session under `remote_ufrag`. The old one goes on until the peer nominates an
    /// address in the new one. Gives the ufrag of a session that was begun before and is given up for this one.
    pub(super) fn restart(
        &mut self,
        now: Instant,
        local: IceCreds,
        remote_ufrag: String,
    ) -> Result<Option<String>, TooOften> {
        let waited = self.restarts_since.map_or(Duration::MAX, |since| now.saturating_duration_since(since));
        if waited >= RESTART_EVERY.saturating_mul(self.restarts) {
            (self.restarts, self.restarts_since) = (0, Some(now));
        }
        if self.restarts >= RESTARTS_AT_ONCE {
            return Err(TooOften(RESTART_EVERY.saturating_mul(self.restarts).saturating_sub(waited)));
        }
        self.restarts += 1;
        let given_up = self.next.replace(Session::new(local, remote_ufrag));
        Ok(given_up.map(|session| session.local.ufrag))
    }

    /// Takes a STUN message; nothing is to be said to a binding indication.
    pub(super) fn check(
        &mut self,
        from: SocketAddr,
        to: SocketAddr,
        datagram: &[u8],
    ) -> Result<Option<Answered>, DatagramRefused> {
        let request = match BindingRequest::parse(datagram) {
            Ok(request) => request,
            // Keeps a NAT open and asks for nothing (RFC 8445 §11).
            Err(stun::StunRefusal::NotBindingRequest(_)) if stun::is_indication(datagram) && self.has_proven(from) => {
                return Ok(None);
            }
            Err(stun::StunRefusal::NotBindingRequest(_)) => return Err(DatagramRefused::NotOurs),
            Err(_) => return Err(DatagramRefused::Unreadable),
        };
        let is_next = self.next.as_ref().is_some_and(|next| next.local.ufrag == request.ours);
        let session = if is_next { self.newest() } else { &self.current };
        if session.local.ufrag != request.ours
            || session.remote_ufrag != request.theirs
            || !request.is_authentic(&session.key)
        {
            return Err(DatagramRefused::NotAuthenticated);
        }
        let mut reply = Vec::with_capacity(96);
        if request.controlled {
            stun::write_role_conflict(&mut reply, &request.transaction, &session.key);
            return Ok(Some(Answered { reply, moved: Move::Stays, retired: None }));
        }
        stun::write_success(&mut reply, &request.transaction, from, &session.key);
        self.prove(from);
        let mut retired = None;
        if is_next
            && request.use_candidate
            && let Some(next) = self.next.take()
        {
            // RFC 8445 §9: media went on in the old session until now.
            retired = Some(std::mem::replace(&mut self.current, next).local.ufrag);
            self.proven.retain(|address| *address == from);
            self.rival = Some(from);
        }
        let moved = if request.use_candidate { self.nominate(from, to, request.priority) } else { Move::Stays };
        Ok(Some(Answered { reply, moved, retired }))
    }

    /// `from` is the address checked last; the one checked longest ago makes room.
    fn prove(&mut self, from: SocketAddr) {
        if let Some(place) = self.proven.iter().position(|address| *address == from) {
            self.proven[place..].rotate_left(1);
            return;
        }
        if self.proven.len() >= ADDRESSES_MAX {
            self.proven.remove(0);
        }
        self.proven.push(from);
    }

    /// A nomination is followed at once if its priority is higher, or if it is for the pair that is nominated: the
    /// same priority to the same address of ours comes from the same candidate of the peer, whose NAT has given it
    /// another port. One of lower priority is followed when it is repeated without the current address being
    /// nominated in between: a peer that nominates all its pairs (RFC 5245 §8.1.1.2) stays on its best, one that has
    /// moved (RFC 8445 §8.1.1) is followed within two checks.
    fn nominate(&mut self, from: SocketAddr, to: SocketAddr, priority: u32) -> Move {
        let rival = self.rival.replace(from);
        let moved = match self.nominated {
            None => Move::First(from),
            Some(current) if current.peer == from => Move::Stays,
            Some(current) => {
                let better = priority > current.priority;
                let same_pair = (priority, to) == (current.priority, current.to);
                if !better && !same_pair && rival != Some(from) {
                    return Move::Stays;
                }
                Move::To(from)
            }
        };
        self.nominated = Some(Nominated { peer: from, to, priority });
        self.rival = None;
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::stun::test_request;
    use proptest::prelude::*;

    const SERVER: &str = "198.51.100.1:7882";

    fn address(n: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], n))
    }

    fn creds(n: u8) -> IceCreds {
        IceCreds { ufrag: format!("ours{n}"), pass: format!("ourpasswordourpassword{n}") }
    }

    fn agent() -> Agent {
        Agent::new(creds(0), "them0".to_owned())
    }

    /// A check in the ICE session `n`, from port `from`.
    fn check_in(agent: &mut Agent, n: u8, from: u16, priority: u32, nominates: bool) -> Option<Answered> {
        let username = format!("ours{n}:them{n}");
        let request = test_request(&username, priority, nominates, &creds(n).pass);
        agent.check(address(from), SERVER.parse().unwrap(), &request).ok().flatten()
    }

    fn check(agent: &mut Agent, from: u16, priority: u32, nominates: bool) -> Option<Move> {
        check_in(agent, 0, from, priority, nominates).map(|answered| answered.moved)
    }

    #[test]
    fn the_first_nomination_connects_and_a_better_one_moves() {
        let mut agent = agent();
        assert_eq!(check(&mut agent, 1, 100, false), Some(Move::Stays));
        assert!(agent.has_proven(address(1)) && agent.peer().is_none());
        assert_eq!(check(&mut agent, 1, 100, true), Some(Move::First(address(1))));
        assert_eq!(check(&mut agent, 2, 200, true), Some(Move::To(address(2))));
        assert_eq!(agent.peer(), Some(address(2)));
    }

    #[test]
    fn a_peer_that_nominates_every_pair_stays_on_its_best() {
        let mut agent = agent();
        check(&mut agent, 1, 200, true);
        for _ in 0..10 {
            assert_eq!(check(&mut agent, 2, 100, true), Some(Move::Stays));
            assert_eq!(check(&mut agent, 1, 200, true), Some(Move::Stays));
        }
    }

    #[test]
    fn a_peer_that_moves_to_a_worse_path_is_followed() {
        let mut agent = agent();
        check(&mut agent, 1, 200, true);
        assert_eq!(check(&mut agent, 2, 100, true), Some(Move::Stays));
        assert_eq!(check(&mut agent, 2, 100, true), Some(Move::To(address(2))));
    }

    #[test]
    fn a_peer_whose_nat_gives_it_another_port_is_followed_by_the_first_check() {
        let mut agent = agent();
        check(&mut agent, 1, 200, true);
        assert_eq!(check(&mut agent, 2, 200, true), Some(Move::To(address(2))));
        // The same priority to another address of ours is another pair.
        let request = test_request("ours0:them0", 200, true, &creds(0).pass);
        let other = agent.check(address(3), "203.0.113.1:7882".parse().unwrap(), &request).unwrap().unwrap();
        assert_eq!(other.moved, Move::Stays);
    }

    #[test]
    fn every_ufrag_that_an_offer_may_have_connects() {
        for odd in (0..=127u8).map(char::from) {
            let remote_ufrag = format!("a{odd}b{odd}");
            let line = format!("a=ice-ufrag:{remote_ufrag}\r\na=ice-pwd:{}\r\n", "p".repeat(22));
            let Ok(Some(taken)) = crate::sdp::Fragment::parse(&line).map(|fragment| fragment.ufrag) else { continue };
            let mut agent = Agent::new(creds(0), taken.clone());
            let request = test_request(&format!("ours0:{taken}"), 1, true, &creds(0).pass);
            let answered = agent.check(address(1), SERVER.parse().unwrap(), &request);
            assert_eq!(answered.unwrap().unwrap().moved, Move::First(address(1)), "{taken}");
        }
    }

    #[test]
    fn what_is_not_authentic_proves_nothing() {
        let mut agent = agent();
        let to = SERVER.parse().unwrap();
        for (username, password) in [
            ("ours0:them0", "ourpasswordourpassword1"),
            ("ours0:them1", "ourpasswordourpassword0"),
            ("ours1:them0", "ourpasswordourpassword0"),
        ] {
            let request = test_request(username, 1, true, password);
            assert_eq!(agent.check(address(1), to, &request), Err(DatagramRefused::NotAuthenticated), "{username}");
        }
        assert!(!agent.has_proven(address(1)) && agent.peer().is_none());
    }

    #[test]
    fn a_call_may_move_without_end_and_remembers_the_latest_addresses() {
        let mut agent = agent();
        check(&mut agent, 1, 9, true);
        for n in 2..5_000 {
            assert_eq!(check(&mut agent, n, 9, true), Some(Move::To(address(n))));
            assert!(agent.has_proven(address(n)) && agent.has_proven(address(n - 1)));
        }
        assert_eq!(agent.proven.len(), ADDRESSES_MAX);
        assert!(!agent.has_proven(address(4_000)));
        // The nominated one stays, whatever else is checked.
        for n in 5_000..5_100 {
            check(&mut agent, n, 1, false);
        }
        assert!(agent.has_proven(address(4_999)));
    }

    #[test]
    fn a_restart_takes_over_when_an_address_is_nominated_in_it() {
        let (mut agent, now) = (agent(), now());
        check(&mut agent, 1, 200, true);
        assert_eq!(agent.restart(now, creds(1), "them1".into()), Ok(None));
        assert_eq!((agent.local().ufrag.as_str(), agent.remote_ufrag()), ("ours1", "them1"));
        // The old session goes on: its checks are answered and may even move the peer.
        assert_eq!(check(&mut agent, 1, 200, true), Some(Move::Stays));
        let answered = check_in(&mut agent, 1, 2, 100, false).unwrap();
        assert_eq!((answered.moved, answered.retired), (Move::Stays, None));
        assert_eq!(agent.peer(), Some(address(1)));
        // At once, although of lower priority: it is another session.
        let answered = check_in(&mut agent, 1, 2, 100, true).unwrap();
        assert_eq!((answered.moved, answered.retired.as_deref()), (Move::To(address(2)), Some("ours0")));
        assert_eq!(check(&mut agent, 1, 200, true), None, "the old session is over");
        assert!(!agent.has_proven(address(1)));
    }

    #[test]
    fn a_restart_from_the_same_address_moves_nothing_and_ends_the_old_session() {
        let (mut agent, now) = (agent(), now());
        check(&mut agent, 1, 200, true);
        agent.restart(now, creds(1), "them1".into()).unwrap();
        let answered = check_in(&mut agent, 1, 1, 200, true).unwrap();
        assert_eq!((answered.moved, answered.retired.as_deref()), (Move::Stays, Some("ours0")));
    }

    #[test]
    fn a_restart_before_the_first_nomination_connects() {
        let (mut agent, now) = (agent(), now());
        agent.restart(now, creds(1), "them1".into()).unwrap();
        assert_eq!(check_in(&mut agent, 1, 1, 200, true).unwrap().moved, Move::First(address(1)));
    }

    #[test]
    fn the_last_of_several_restarts_counts_and_too_many_are_refused() {
        let (mut agent, now) = (agent(), now());
        assert_eq!(agent.restart(now, creds(1), "them1".into()), Ok(None));
        for n in 2..=5 {
            assert_eq!(agent.restart(now, creds(n), format!("them{n}")), Ok(Some(format!("ours{}", n - 1))));
        }
        let refused = agent.restart(now + Duration::from_secs(5), creds(6), "them6".into());
        assert_eq!(refused, Err(TooOften(Duration::from_secs(10))), "five in 15 s");
        assert_eq!(agent.local().ufrag, "ours5", "what was refused changes nothing");
        assert!(check_in(&mut agent, 4, 1, 1, true).is_none());
        assert!(check_in(&mut agent, 5, 1, 1, true).is_some());
        assert!(agent.restart(now + Duration::from_secs(15), creds(6), "them6".into()).is_ok());
    }

    #[test]
    fn who_takes_itself_for_controlled_is_told_to_control() {
        let mut agent = agent();
        let mut request = test_request("ours0:them0", 1, true, &creds(0).pass);
        // PRIORITY becomes ICE-CONTROLLED, which is not authentic any more: nothing is said.
        let at = request.windows(2).position(|w| w == [0x00, 0x24]).unwrap();
        request[at] = 0x80;
        request[at + 1] = 0x29;
        assert_eq!(agent.check(address(1), SERVER.parse().unwrap(), &request), Err(DatagramRefused::NotAuthenticated));
        let request = stun::test_controlled("ours0:them0", &creds(0).pass);
        let answered = agent.check(address(1), SERVER.parse().unwrap(), &request).unwrap().unwrap();
        assert_eq!(answered.reply[..2], [0x01, 0x11]);
        assert!(!agent.has_proven(address(1)));
    }

    proptest! {
        #[test]
        fn arbitrary_datagrams_never_panic(datagram in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = agent().check(address(1), SERVER.parse().unwrap(), &datagram);
        }
    }

    #[allow(clippy::disallowed_methods, reason = "a test needs some instant to start from")]
    fn now() -> Instant {
        Instant::now()
    }
}
