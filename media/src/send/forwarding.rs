//! What one section of a viewer does with the packets of its track's layers: a pure state machine.
//!
//! ```text
//!            assign            key frame of n            follow m
//!   Free n ─────────▶ Waiting n ─────────────▶ Flowing n ◀────────▶ Switching n → m
//!                      ▲   │ pause               │ pause   follow n      │ key frame of m
//!               resume │   ▼                     ▼                       ▼
//!                      Paused n ◀────────────────┘                   Flowing m
//! ```
//!
//! `release` leads to Free from everywhere. The layer that flows goes on until the wanted one has a key frame.

/// States; each knows which layer is wanted. A track without layers has layer 0 alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forwarding {
    /// Nothing is assigned.
    Free {
        /// Layer to begin with.
        target: u8,
    },
    /// Nothing is forwarded, by wish.
    Paused {
        /// Layer to go on with.
        target: u8,
    },
    /// Something is assigned and has not begun: video begins with a key frame, audio with any packet.
    Waiting {
        /// The layer that is waited for.
        target: u8,
    },
    /// Packets of this layer flow.
    Flowing {
        /// Which.
        layer: u8,
    },
    /// Packets of one layer flow until another has a key frame.
    Switching {
        /// Which flows.
        layer: u8,
        /// Which is waited for.
        target: u8,
    },
}

/// What happens to a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It carries a source from now on, or another one.
    Assign,
    /// It carries nothing any more.
    Release,
    /// Nothing is to be sent.
    Pause,
    /// It is to go on.
    Resume,
    /// This layer is wanted from now on.
    Follow(u8),
    /// A decoder can begin with this packet of this layer.
    Entry(u8),
}

/// What is to be done with packets of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// They are not for this viewer.
    Drop,
    /// They flow.
    Pass,
    /// The layer begins with them: [`Event::Entry`] follows.
    Begin,
    /// The layer is waited for, and this is no beginning.
    Wait,
}

impl Forwarding {
    /// The layer that is wanted.
    pub fn target(self) -> u8 {
        match self {
            Self::Free { target } | Self::Paused { target } | Self::Waiting { target } => target,
            Self::Flowing { layer } => layer,
            Self::Switching { target, .. } => target,
        }
    }

    /// The layer that flows.
    pub fn flowing(self) -> Option<u8> {
        match self {
            Self::Flowing { layer } | Self::Switching { layer, .. } => Some(layer),
            Self::Free { .. } | Self::Paused { .. } | Self::Waiting { .. } => None,
        }
    }

    /// The state after an event.
    #[must_use]
    pub fn on(self, event: Event) -> Self {
        let target = self.target();
        match (event, self) {
            (Event::Release, _) => Self::Free { target },
            (Event::Assign, Self::Paused { .. }) => self,
            (Event::Assign, _) => Self::Waiting { target },
            (Event::Pause, Self::Free { .. }) => self,
            (Event::Pause, _) => Self::Paused { target },
            (Event::Resume, Self::Paused { .. }) => Self::Waiting { target },
            (Event::Resume, _) => self,
            (Event::Follow(target), Self::Free { .. }) => Self::Free { target },
            (Event::Follow(target), Self::Paused { .. }) => Self::Paused { target },
            (Event::Follow(target), Self::Waiting { .. }) => Self::Waiting { target },
            (Event::Follow(target), Self::Flowing { layer } | Self::Switching { layer, .. }) => {
                if target == layer {
                    Self::Flowing { layer }
                } else {
                    Self::Switching { layer, target }
                }
            }
            (Event::Entry(layer), Self::Waiting { .. } | Self::Switching { .. }) if layer == target => {
                Self::Flowing { layer }
            }
            (Event::Entry(_), _) => self,
        }
    }

    /// What is to be done with packets of `layer`; `entry`: a decoder can begin with one of them.
    pub fn judge(self, layer: u8, entry: bool) -> Verdict {
        let waited_for = if entry { Verdict::Begin } else { Verdict::Wait };
        match self {
            Self::Waiting { target } if layer == target => waited_for,
            Self::Flowing { layer: flowing } | Self::Switching { layer: flowing, .. } if layer == flowing => {
                Verdict::Pass
            }
            Self::Switching { target, .. } if layer == target => waited_for,
            Self::Free { .. }
            | Self::Paused { .. }
            | Self::Waiting { .. }
            | Self::Flowing { .. }
            | Self::Switching { .. } => Verdict::Drop,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Forwarding::{Flowing, Free, Paused, Switching, Waiting};
    use super::*;

    const EVENTS: [Event; 9] = [
        Event::Assign,
        Event::Release,
        Event::Pause,
        Event::Resume,
        Event::Follow(1),
        Event::Follow(2),
        Event::Entry(0),
        Event::Entry(1),
        Event::Entry(2),
    ];

    /// Every state with layer 1 (and 2 where it has two), and where each event leads.
    #[test]
    fn every_event_in_every_state() {
        let (free, paused, waiting) = (Free { target: 1 }, Paused { target: 1 }, Waiting { target: 1 });
        let (flowing, switching) = (Flowing { layer: 1 }, Switching { layer: 1, target: 2 });
        #[rustfmt::skip]
        let table = [
            // state     Assign               Release             Pause                Resume               Follow(1)  Follow(2)             Entry(0)   Entry(1)   Entry(2)
            (free,      [waiting,             free,               free,                free,                free,      Free { target: 2 },    free,      free,      free]),
            (paused,    [paused,              free,               paused,              waiting,             paused,    Paused { target: 2 },  paused,    paused,    paused]),
            (waiting,   [waiting,             free,               paused,              waiting,             waiting,   Waiting { target: 2 }, waiting,   flowing,   waiting]),
            (flowing,   [waiting,             free,               paused,              flowing,             flowing,   switching,             flowing,   flowing,   flowing]),
            (switching, [Waiting { target: 2 }, Free { target: 2 }, Paused { target: 2 }, switching,        flowing,   switching,             switching, switching, Flowing { layer: 2 }]),
        ];
        for (state, after) in table {
            for (event, after) in EVENTS.into_iter().zip(after) {
                assert_eq!(state.on(event), after, "{state:?} on {event:?}");
            }
        }
    }

    #[test]
    fn packets_of_every_layer_in_every_state() {
        use Verdict::{Begin, Drop, Pass, Wait};
        for (state, without, with) in [
            (Free { target: 1 }, [Drop; 3], [Drop; 3]),
            (Paused { target: 1 }, [Drop; 3], [Drop; 3]),
            (Waiting { target: 1 }, [Drop, Wait, Drop], [Drop, Begin, Drop]),
            (Flowing { layer: 1 }, [Drop, Pass, Drop], [Drop, Pass, Drop]),
            (Switching { layer: 1, target: 2 }, [Drop, Pass, Wait], [Drop, Pass, Begin]),
        ] {
            for layer in 0..3 {
                let judged = [false, true].map(|entry| state.judge(layer, entry));
                assert_eq!(judged, [without[usize::from(layer)], with[usize::from(layer)]], "{state:?}, layer {layer}");
                // What begins is what the state machine takes for a beginning.
                assert_eq!(judged[1] == Begin, state.on(Event::Entry(layer)) != state);
            }
        }
    }
}
