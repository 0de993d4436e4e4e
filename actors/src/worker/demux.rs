//! Which transport a datagram belongs to: by its first byte (RFC 7983 §7) and the address it came from.
//!
//! An address is learned only from a STUN binding request that names a ufrag of ours, and is provisional until
//! the transport's ICE agent has authenticated such a request ([`Demux::confirm`]). Rules that keep peers apart:
//! a confirmed address stays with its transport until another one confirms it (a port is drawn again before
//! whoever had it is forgotten), or its own is removed or has moved on to others; a provisional one goes to
//! whoever asked last. A peer confirms with each of its checks, so an address taken by one that forges where its
//! checks come from is back with the next. Memory is bounded by the transports: at most `ADDRESSES_MAX` addresses
//! and `UFRAGS_MAX` ufrags each; nothing is kept of datagrams that belong to nobody.

use super::budget::{Bucket, Rate};
use super::hash::Keyed;
use rondo_media::wire::rtp::{Class, classify};
use rondo_media::wire::stun::local_ufrag;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

/// A transport, by where its session is and which of the session's transports it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Route {
    /// The session's place in the worker's table.
    pub slot: u32,
    /// The session's transport.
    pub transport: u8,
}

/// Why a datagram belongs to nobody; each is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Drop {
    /// Its first byte is neither STUN, DTLS, RTP nor RTCP.
    #[error("neither STUN, DTLS, RTP nor RTCP")]
    NotOurs,
    /// It came from an address that no transport has named.
    #[error("from an address that no transport has named")]
    UnknownAddress,
    /// STUN that cannot be read, or a request whose ufrag is not one of ours.
    #[error("STUN that cannot be read, or with a ufrag that is not ours")]
    BadStun,
    /// More STUN and DTLS than one transport may be sent.
    #[error("more STUN and DTLS than one transport may be sent")]
    OverRate,
}

/// Why a ufrag was not added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddError {
    /// The table holds as many transports as it may.
    #[error("the demux holds {0} transports already")]
    Full(usize),
    /// Another transport has the ufrag: the caller draws another.
    #[error("another transport has this ufrag")]
    Taken,
}

/// Addresses of one transport: a browser checks from each of its interfaces, and roams.
pub const ADDRESSES_MAX: usize = 8;
/// Ufrags of one transport: the present one, and the one before an ICE restart (RFC 8445 §2.4), on which
/// media flows until the new one is confirmed.
pub const UFRAGS_MAX: usize = 2;

/// STUN and DTLS for one transport from addresses that its ICE agent has confirmed. A handshake is a dozen datagrams
/// with retransmissions, consent is asked for every 5 s (RFC 7675 §5.1); each costs a signature or an HMAC.
const CONFIRMED_RATE: Rate = Rate { burst: 256, per_s: 256 };
/// The same from all other addresses together: whoever knows a ufrag can send it from anywhere, and must not use up
/// what the true peer needs. An agent checks each pair every 50 ms at the most (RFC 8445 §14.2).
const STRANGERS_RATE: Rate = Rate { burst: 128, per_s: 128 };

/// An IP address and port as a short key; IPv4 as its IPv4-mapped IPv6 address, the scope of a link-local
/// address beside the port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct AddressKey {
    ip: u128,
    scope_and_port: u64,
}

impl From<SocketAddr> for AddressKey {
    fn from(addr: SocketAddr) -> Self {
        let (ip, scope) = match addr {
            SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped(), 0),
            SocketAddr::V6(v6) => (*v6.ip(), v6.scope_id()),
        };
        Self { ip: ip.to_bits(), scope_and_port: u64::from(scope) << 16 | u64::from(addr.port()) }
    }
}

#[derive(Debug, Clone, Copy)]
struct Owner {
    route: Route,
    confirmed: bool,
}

/// What the table holds of one transport.
#[derive(Debug, Default)]
struct Transport {
    /// Newest last.
    ufrags: Vec<Box<str>>,
    /// Those learned or confirmed longest ago first.
    addresses: Vec<AddressKey>,
    /// STUN and DTLS from confirmed addresses.
    confirmed: Bucket,
    /// STUN and DTLS from others.
    strangers: Bucket,
}

/// The table of one worker.
#[derive(Debug)]
pub struct Demux {
    transports_max: usize,
    by_address: HashMap<AddressKey, Owner, Keyed>,
    by_ufrag: HashMap<Box<str>, Route, Keyed>,
    transports: HashMap<Route, Transport, Keyed>,
}

impl Demux {
    /// An empty table for at most `transports_max` transports.
    pub fn new(transports_max: usize) -> Self {
        Self {
            transports_max,
            by_address: HashMap::default(),
            by_ufrag: HashMap::default(),
            transports: HashMap::default(),
        }
    }

    /// From now on, binding requests that name `ufrag` belong to `route`. A second ufrag of the same transport
    /// (ICE restart) leaves the first one valid, a third ends the first.
    ///
    /// # Errors
    /// `Full` when the table holds as many transports as it may, `Taken` when another transport has the ufrag.
    pub fn add(&mut self, ufrag: &str, route: Route) -> Result<(), AddError> {
        match self.by_ufrag.get(ufrag) {
            Some(owner) if *owner == route => return Ok(()),
            Some(_) => return Err(AddError::Taken),
            None => {}
        }
        if self.transports.len() >= self.transports_max && !self.transports.contains_key(&route) {
            return Err(AddError::Full(self.transports_max));
        }
        let transport = self.transports.entry(route).or_default();
        if transport.ufrags.len() >= UFRAGS_MAX {
            self.by_ufrag.remove(&transport.ufrags.remove(0));
        }
        transport.ufrags.push(ufrag.into());
        self.by_ufrag.insert(ufrag.into(), route);
        Ok(())
    }

    /// Binding requests that name `ufrag` belong to nobody any more, if they belonged to `route`.
    pub fn retire(&mut self, ufrag: &str, route: Route) {
        if self.by_ufrag.get(ufrag) == Some(&route) {
            self.by_ufrag.remove(ufrag);
            if let Some(transport) = self.transports.get_mut(&route) {
                transport.ufrags.retain(|known| **known != *ufrag);
            }
        }
    }

    /// Forgets a transport, its ufrags and its addresses.
    pub fn remove(&mut self, route: Route) {
        let Some(transport) = self.transports.remove(&route) else { return };
        for ufrag in transport.ufrags {
            self.by_ufrag.remove(&ufrag);
        }
        for address in transport.addresses {
            self.by_address.remove(&address);
        }
    }

    /// The transport that `datagram`, received from `from`, belongs to.
    ///
    /// Binding requests go by the ufrag they name, everything else by address.
    ///
    /// # Errors
    /// Why it belongs to nobody; the caller drops and counts it.
    pub fn route(&mut self, from: SocketAddr, datagram: &[u8]) -> Result<Route, Drop> {
        match classify(datagram) {
            Class::Stun if is_binding_request(datagram) => {
                let ufrag = local_ufrag(datagram).map_err(|_| Drop::BadStun)?;
                let route = *self.by_ufrag.get(ufrag).ok_or(Drop::BadStun)?;
                self.learn(from.into(), route);
                Ok(route)
            }
            Class::Stun | Class::Dtls | Class::Rtp | Class::Rtcp => {
                self.by_address.get(&from.into()).map(|owner| owner.route).ok_or(Drop::UnknownAddress)
            }
            Class::Unknown => Err(Drop::NotOurs),
        }
    }

    /// The transport that `datagram` belongs to, as [`Self::route`] says, if it may be bothered with it now: what costs
    /// it crypto before anything is proven has a budget.
    ///
    /// # Errors
    /// Those of [`Self::route`], and `OverRate`.
    pub fn admit(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) -> Result<Route, Drop> {
        let route = self.route(from, datagram)?;
        if matches!(classify(datagram), Class::Stun | Class::Dtls) {
            let confirmed = self.by_address.get(&from.into()).is_some_and(|o| o.confirmed && o.route == route);
            let Some(transport) = self.transports.get_mut(&route) else { return Err(Drop::UnknownAddress) };
            let (bucket, rate) = match confirmed {
                true => (&mut transport.confirmed, CONFIRMED_RATE),
                false => (&mut transport.strangers, STRANGERS_RATE),
            };
            if !bucket.spend(now, rate, 1) {
                return Err(Drop::OverRate);
            }
        }
        Ok(route)
    }

    /// The transport's ICE agent has authenticated a request from `from`: the address is its own from now on.
    ///
    /// Answers whether it is. `false`: `route` is unknown.
    pub fn confirm(&mut self, from: SocketAddr, route: Route) -> bool {
        let key = AddressKey::from(from);
        if !self.transports.contains_key(&route) {
            return false;
        }
        match self.by_address.get_mut(&key) {
            Some(owner) if owner.route == route => {
                // Every keep-alive confirms: the address is moved behind the others only when it is new.
                if owner.confirmed {
                    return true;
                }
                owner.confirmed = true;
            }
            Some(_) | None => {
                if !self.make_room(route, true) {
                    return false;
                }
                self.give(key, Owner { route, confirmed: true });
            }
        }
        self.youngest(key, route);
        true
    }

    /// Whether an address has been proven by another transport than `route` since that used it: what `route` still has
    /// to say there, an alert in the clear above all, would be heard by somebody else.
    pub fn is_anothers(&self, to: SocketAddr, route: Route) -> bool {
        self.by_address.get(&to.into()).is_some_and(|owner| owner.confirmed && owner.route != route)
    }

    /// Transports in the table.
    pub fn transports(&self) -> usize {
        self.transports.len()
    }

    /// Ufrags in the table.
    pub fn ufrags(&self) -> usize {
        self.by_ufrag.len()
    }

    /// Addresses in the table, provisional ones included.
    pub fn addresses(&self) -> usize {
        self.by_address.len()
    }

    /// A binding request for `route` came from `key`.
    fn learn(&mut self, key: AddressKey, route: Route) {
        match self.by_address.get(&key) {
            Some(owner) if owner.route == route || owner.confirmed => {}
            Some(_) | None => {
                if self.make_room(route, false) {
                    self.give(key, Owner { route, confirmed: false });
                }
            }
        }
    }

    /// Makes `owner` the owner of an address, whoever had it.
    fn give(&mut self, key: AddressKey, owner: Owner) {
        if let Some(before) = self.by_address.insert(key, owner)
            && let Some(transport) = self.transports.get_mut(&before.route)
        {
            transport.addresses.retain(|address| *address != key);
        }
        if let Some(transport) = self.transports.get_mut(&owner.route) {
            transport.addresses.push(key);
        }
    }

    /// Lets go of an address of `route` if it has as many as it may: of the oldest provisional one, or, for an
    /// address that is confirmed, of the oldest of all. Answers whether there is room now.
    fn make_room(&mut self, route: Route, for_confirmed: bool) -> bool {
        let Some(transport) = self.transports.get_mut(&route) else { return false };
        if transport.addresses.len() < ADDRESSES_MAX {
            return true;
        }
        let provisional =
            transport.addresses.iter().position(|key| self.by_address.get(key).is_some_and(|owner| !owner.confirmed));
        let Some(place) = provisional.or(for_confirmed.then_some(0)) else { return false };
        self.by_address.remove(&transport.addresses.remove(place));
        true
    }

    fn youngest(&mut self, key: AddressKey, route: Route) {
        if let Some(transport) = self.transports.get_mut(&route)
            && let Some(place) = transport.addresses.iter().position(|address| *address == key)
        {
            transport.addresses[place..].rotate_left(1);
        }
    }
}

/// The STUN message type (RFC 8489 §5) is a binding request.
fn is_binding_request(message: &[u8]) -> bool {
    matches!(message, [0x00, 0x01, ..])
}

/// An address as people write it: IPv4-mapped IPv6 addresses, which a dual-stack socket reports, as IPv4.
pub fn canonical(addr: SocketAddr) -> SocketAddr {
    match addr.ip().to_canonical() {
        IpAddr::V4(v4) => SocketAddr::new(v4.into(), addr.port()),
        IpAddr::V6(_) => addr,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    const A: Route = Route { slot: 1, transport: 0 };
    const B: Route = Route { slot: 2, transport: 3 };
    const RTP: &[u8] = &[0x80, 96, 0, 1];
    const DTLS: &[u8] = &[22, 254, 253];

    fn from(n: u16) -> SocketAddr {
        SocketAddr::new([192, 0, 2, 1].into(), n)
    }

    /// A binding request as RFC 8489 §5 lays it out, an unrelated attribute (PRIORITY) before the USERNAME.
    fn request(username: &str) -> Vec<u8> {
        let mut body = vec![0x00, 0x24, 0, 4, 1, 2, 3, 4, 0x00, 0x06];
        body.extend((username.len() as u16).to_be_bytes());
        body.extend(username.as_bytes());
        body.resize(body.len().next_multiple_of(4), 0);
        let mut out = vec![0x00, 0x01];
        out.extend((body.len() as u16).to_be_bytes());
        out.extend([0x21, 0x12, 0xa4, 0x42]);
        out.extend([7; 12]);
        out.extend(body);
        out
    }

    fn demux() -> Demux {
        let mut d = Demux::new(10);
        d.add("aaaa", A).unwrap();
        d.add("bbbb", B).unwrap();
        d
    }

    #[test]
    fn a_request_names_its_transport_and_teaches_the_address() {
        let mut d = demux();
        assert_eq!(d.route(from(1), RTP), Err(Drop::UnknownAddress));
        assert_eq!(d.route(from(1), &request("aaaa:them")), Ok(A));
        for datagram in [RTP, DTLS, &[0x01, 0x01, 0, 0][..], &[0x81, 200]] {
            assert_eq!(d.route(from(1), datagram), Ok(A));
            assert_eq!(d.route(from(2), datagram), Err(Drop::UnknownAddress));
        }
        let mapped = SocketAddr::new("::ffff:192.0.2.1".parse().unwrap(), 1);
        assert_eq!(d.route(mapped, RTP), Ok(A));
        assert_eq!(canonical(mapped), from(1));
    }

    #[test]
    fn every_first_byte_is_sorted_as_rfc_7983_says() {
        let mut d = demux();
        d.route(from(1), &request("aaaa:them")).unwrap();
        for first in 0..=255u8 {
            let ours = matches!(first, 0..=3 | 20..=63 | 128..=191);
            for second in [96, 200] {
                let got = d.route(from(1), &[first, second]);
                assert_eq!(got, if ours { Ok(A) } else { Err(Drop::NotOurs) }, "{first} {second}");
            }
        }
        assert_eq!(d.route(from(1), &[]), Err(Drop::NotOurs));
    }

    #[test]
    fn stun_that_is_not_ours_teaches_nothing() {
        let mut d = demux();
        let good = request("aaaa:them");
        let mut cookie = good.clone();
        cookie[4] ^= 1;
        for bad in [request("cccc:them"), request("aaaa"), request(""), cookie] {
            assert_eq!(d.route(from(1), &bad), Err(Drop::BadStun));
        }
        for cut in 2..good.len() {
            assert_eq!(d.route(from(1), &good[..cut]), Err(Drop::BadStun), "cut at {cut}");
        }
        assert_eq!(d.addresses(), 0);
    }

    #[test]
    fn an_address_goes_to_who_proved_it_last_and_a_mere_request_takes_none_that_is_proven() {
        let mut d = demux();
        d.route(from(1), &request("aaaa:them")).unwrap();
        d.route(from(1), &request("bbbb:them")).unwrap();
        assert_eq!(d.route(from(1), RTP), Ok(B), "who asked last");
        assert!(d.confirm(from(1), A), "who proved it");
        assert_eq!(d.route(from(1), &request("bbbb:them")), Ok(B), "a request always goes by its ufrag");
        assert_eq!(d.route(from(1), RTP), Ok(A));
        assert!(d.confirm(from(1), B), "it is another's port now");
        assert_eq!(d.route(from(1), RTP), Ok(B));
        assert_eq!(d.route(from(1), &request("aaaa:them")), Ok(A));
        assert_eq!(d.route(from(1), RTP), Ok(B));
        d.remove(A);
        assert_eq!(d.route(from(1), RTP), Ok(B), "what A had once does not go with it");
        d.remove(B);
        assert_eq!(d.route(from(1), RTP), Err(Drop::UnknownAddress));
        d.add("bbbb", B).unwrap();
        assert!(d.confirm(from(1), B));
        assert!(!d.confirm(from(2), A), "gone");
    }

    #[test]
    fn a_transport_keeps_eight_addresses_and_lets_the_oldest_provisional_go() {
        let mut d = demux();
        for port in 1..=8 {
            d.route(from(port), &request("aaaa:them")).unwrap();
        }
        d.confirm(from(1), A);
        d.route(from(9), &request("aaaa:them")).unwrap();
        let known: Vec<u16> = (1..=9).filter(|p| d.route(from(*p), RTP).is_ok()).collect();
        assert_eq!(known, [1, 3, 4, 5, 6, 7, 8, 9]);
        for port in 3..=9 {
            assert!(d.confirm(from(port), A));
        }
        assert_eq!(d.route(from(10), &request("aaaa:them")), Ok(A));
        assert_eq!(d.route(from(10), RTP), Err(Drop::UnknownAddress), "eight confirmed ones leave no room");
        assert!(d.confirm(from(10), A), "until it is confirmed: the peer has roamed");
        let known: Vec<u16> = (1..=10).filter(|p| d.route(from(*p), RTP).is_ok()).collect();
        assert_eq!(known, [3, 4, 5, 6, 7, 8, 9, 10]);
    }

    #[test]
    fn a_restart_keeps_the_ufrag_before_it() {
        let mut d = demux();
        d.add("aaa2", A).unwrap();
        assert_eq!(d.add("aaa2", B), Err(AddError::Taken));
        assert_eq!(d.route(from(1), &request("aaaa:them")), Ok(A));
        assert_eq!(d.route(from(1), &request("aaa2:them")), Ok(A));
        d.add("aaa3", A).unwrap();
        assert_eq!(d.route(from(1), &request("aaaa:them")), Err(Drop::BadStun));
        assert_eq!(d.route(from(1), &request("aaa2:them")), Ok(A));
        d.remove(A);
        assert_eq!(d.route(from(1), &request("aaa3:them")), Err(Drop::BadStun));
        d.add("aaaa", B).unwrap();
    }

    #[test]
    fn a_retired_ufrag_is_its_owners_to_retire() {
        let mut d = demux();
        d.add("aaa2", A).unwrap();
        d.retire("aaaa", B);
        assert_eq!(d.route(from(1), &request("aaaa:them")), Ok(A));
        d.retire("aaaa", A);
        assert_eq!(d.route(from(1), &request("aaaa:them")), Err(Drop::BadStun));
        assert_eq!(d.route(from(1), RTP), Ok(A), "addresses stay");
        d.add("aaa3", A).unwrap();
        assert_eq!(d.route(from(1), &request("aaa2:them")), Ok(A), "there was room for one more");
        d.add("aaaa", B).unwrap();
    }

    #[test]
    fn a_full_table_refuses_transports_but_not_restarts() {
        let mut d = Demux::new(1);
        d.add("aaaa", A).unwrap();
        assert_eq!(d.add("bbbb", B), Err(AddError::Full(1)));
        d.add("aaa2", A).unwrap();
        assert_eq!(d.transports(), 1);
    }

    #[test]
    fn a_flood_to_a_transport_leaves_its_peer_and_others_their_share() {
        let (mut d, now) = (demux(), Instant::now());
        d.route(from(1), &request("aaaa:them")).unwrap();
        assert!(d.confirm(from(1), A));
        d.route(from(2), &request("bbbb:them")).unwrap();
        let flood =
            |d: &mut Demux, from, datagram: &[u8]| (0..10_000).filter(|_| d.admit(now, from, datagram).is_ok()).count();
        // Strangers who know the ufrag get their share, however many addresses they have.
        let strangers: usize = (10..20).map(|n| flood(&mut d, from(n), &request("aaaa:them"))).sum();
        assert_eq!(strangers, 128);
        assert_eq!(d.admit(now, from(10), &request("aaaa:them")), Err(Drop::OverRate));
        // The peer itself, and another transport, still have theirs; and so has media, which has no budget.
        assert_eq!(d.admit(now, from(1), &request("aaaa:them")), Ok(A));
        assert_eq!(d.admit(now, from(2), &request("bbbb:them")), Ok(B));
        assert_eq!(flood(&mut d, from(1), DTLS), 255);
        assert_eq!(flood(&mut d, from(1), RTP), 10_000);
        assert_eq!(d.admit(now, from(1), &request("aaaa:them")), Err(Drop::OverRate));
        let later = now + std::time::Duration::from_secs(1);
        assert_eq!(d.admit(later, from(1), DTLS), Ok(A));
        assert_eq!(d.admit(later, from(10), &request("aaaa:them")), Ok(A));
    }

    #[test]
    fn a_flood_leaves_no_trace() {
        let mut d = demux();
        for n in 0..20_000u32 {
            let to = SocketAddr::new((n ^ 0x0a00_0000).to_be_bytes().into(), n as u16);
            assert_eq!(d.route(to, &request(&format!("wrong{n}:them"))), Err(Drop::BadStun));
            assert_eq!(d.route(to, RTP), Err(Drop::UnknownAddress));
            d.route(to, &request(if n % 2 == 0 { "aaaa:them" } else { "bbbb:them" })).unwrap();
        }
        assert_eq!(d.addresses(), 2 * ADDRESSES_MAX);
        // Hash tables hold a power of two, of which 7/8 are used, and may double once for removed entries.
        assert!(d.by_address.capacity() <= 56, "{}", d.by_address.capacity());
        assert!(d.by_ufrag.capacity() <= 14 && d.transports.capacity() <= 14);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Request(u16, u8),
        Confirm(u16, u8),
        Add(u8),
        Remove(u8),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0u16..14, 0u8..4).prop_map(|(p, r)| Step::Request(p, r)),
            4 => (0u16..14, 0u8..4).prop_map(|(p, r)| Step::Confirm(p, r)),
            1 => (0u8..4).prop_map(Step::Add),
            1 => (0u8..4).prop_map(Step::Remove),
        ]
    }

    /// The plain model: a list of (address, owner, confirmed), oldest first, searched whole each time.
    #[derive(Default)]
    struct Model {
        live: BTreeSet<u8>,
        known: Vec<(u16, u8, bool)>,
    }

    impl Model {
        fn owner(&self, port: u16) -> Option<(u8, bool)> {
            self.known.iter().find(|k| k.0 == port).map(|k| (k.1, k.2))
        }
        fn put(&mut self, port: u16, route: u8, confirmed: bool) -> bool {
            if self.known.iter().filter(|k| k.1 == route).count() >= 8 {
                let place = self.known.iter().position(|k| k.1 == route && !k.2);
                let oldest = self.known.iter().position(|k| k.1 == route);
                let Some(place) = place.or(if confirmed { oldest } else { None }) else { return false };
                self.known.remove(place);
            }
            self.known.retain(|k| k.0 != port);
            self.known.push((port, route, confirmed));
            true
        }
        fn request(&mut self, port: u16, route: u8) {
            match self.owner(port) {
                Some((owner, confirmed)) if owner == route || confirmed => {}
                _ => drop(self.put(port, route, false)),
            }
        }
        fn confirm(&mut self, port: u16, route: u8) -> bool {
            match self.owner(port) {
                _ if !self.live.contains(&route) => false,
                Some((owner, true)) if owner == route => true,
                Some((owner, false)) if owner == route => {
                    self.known.retain(|k| k.0 != port);
                    self.put(port, route, true)
                }
                Some(_) | None => self.put(port, route, true),
            }
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_plain_list(steps in proptest::collection::vec(step(), 1..200)) {
            let mut d = Demux::new(10);
            let mut model = Model::default();
            let routes: BTreeMap<u8, Route> = (0..4).map(|n| (n, Route { slot: u32::from(n / 2), transport: n % 2 })).collect();
            for step in steps {
                match step {
                    Step::Add(n) => {
                        d.add(&format!("ufr{n}"), routes[&n]).unwrap();
                        model.live.insert(n);
                    }
                    Step::Remove(n) => {
                        d.remove(routes[&n]);
                        model.live.remove(&n);
                        model.known.retain(|k| k.1 != n);
                    }
                    Step::Request(port, n) => {
                        let want = if model.live.contains(&n) { Ok(routes[&n]) } else { Err(Drop::BadStun) };
                        if want.is_ok() {
                            model.request(port, n);
                        }
                        prop_assert_eq!(d.route(from(port), &request(&format!("ufr{n}:peer"))), want);
                    }
                    Step::Confirm(port, n) => {
                        let want = model.confirm(port, n);
                        prop_assert_eq!(d.confirm(from(port), routes[&n]), want);
                    }
                }
                for port in 0..14 {
                    let want = model.owner(port).map(|(n, _)| routes[&n]).ok_or(Drop::UnknownAddress);
                    prop_assert_eq!(d.route(from(port), RTP), want);
                }
                prop_assert_eq!(d.addresses(), model.known.len());
            }
        }

        #[test]
        fn routing_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut d = demux();
            let _ = d.route(from(1), &bytes);
            let mut request = request("aaaa:them");
            for (to, from) in request.iter_mut().skip(20).zip(&bytes) {
                *to ^= from;
            }
            let _ = d.route(from(1), &request);
        }
    }
}
