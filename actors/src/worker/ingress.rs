//! From a round's datagrams to one message per session.

use crate::batch::Datagram;
use crate::local::Local;
use crate::port::Refused;
use crate::session::SessionMsg;
use crate::worker::demux::Drop;
use bytes::Bytes;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

/// Gathers what one round of the worker received.
pub struct Ingress {
    local: Rc<Local>,
    gathered: Vec<(u32, Vec<Datagram>)>,
    /// By slot: one more than the place in `gathered`; 0 where nothing was gathered.
    places: Vec<u32>,
}

impl Ingress {
    /// For one worker.
    pub fn new(local: Rc<Local>) -> Self {
        Self { local, gathered: Vec::new(), places: Vec::new() }
    }

    /// Takes one datagram: routed by first byte and address, or dropped and counted.
    pub fn datagram(&mut self, now: Instant, from: SocketAddr, to: SocketAddr, bytes: Bytes) {
        let counters = &self.local.counters;
        self.local.received_one();
        let route = self.local.demux.borrow_mut().admit(now, from, &bytes);
        match route {
            Ok(route) => {
                let datagram = Datagram { transport: route.transport, from, to, bytes };
                let slot = route.slot as usize;
                if self.places.len() <= slot {
                    self.places.resize(slot + 1, 0);
                }
                match self.places[slot].checked_sub(1).and_then(|place| self.gathered.get_mut(place as usize)) {
                    Some((_, datagrams)) => datagrams.push(datagram),
                    None => {
                        let mut list = self.local.pool.borrow_mut().list();
                        list.push(datagram);
                        self.gathered.push((route.slot, list));
                        self.places[slot] = self.gathered.len() as u32;
                    }
                }
            }
            Err(Drop::NotOurs) => counters.dropped_not_ours.add(1),
            Err(Drop::UnknownAddress) => counters.dropped_unknown_address.add(1),
            Err(Drop::BadStun) => counters.dropped_bad_stun.add(1),
            Err(Drop::OverRate) => counters.dropped_over_rate.add(1),
        }
    }

    /// The round is over: every session gets what is its, in one message.
    pub fn deliver(&mut self) {
        for (slot, datagrams) in self.gathered.drain(..) {
            self.places[slot as usize] = 0;
            let Some(session) = self.local.session(slot) else { continue };
            let count = datagrams.len() as u64;
            // A session that is behind loses datagrams, as it would on the wire; a flood to one is no harm to others.
            let back = match session.tell(SessionMsg::Datagrams(datagrams)) {
                Ok(()) => continue,
                Err(Refused::Full(back)) => {
                    self.local.counters.queue_full.add(count);
                    back
                }
                Err(Refused::Gone(back)) => back,
            };
            if let SessionMsg::Datagrams(list) = back {
                self.local.pool.borrow_mut().give_back(list);
            }
        }
    }
}
