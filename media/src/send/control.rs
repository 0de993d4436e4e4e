//! One viewer's estimate: what it is fed with, and the padding it asks for.

use super::PacketSink;
use super::egress::Egress;
use crate::congestion::Estimate;
use crate::units::{Bitrate, Deadline, Why};
use std::time::Instant;

impl Egress {
    /// What the viewer's path takes; none for who is sent no video, and before anything is known.
    pub fn estimate(&self) -> Option<Estimate> {
        self.estimator.as_ref()?.estimate()
    }

    /// Its target alone.
    pub fn target(&self) -> Option<Bitrate> {
        self.estimator.as_ref()?.target()
    }

    /// The rate that a better choice of layers would need: padding finds out whether the path takes it. What is above
    /// the estimate only.
    pub fn set_wanted(&mut self, wanted: Bitrate) {
        if let Some(estimator) = &mut self.estimator {
            estimator.set_wanted(wanted);
        }
    }

    /// The receiver that told an estimate of its own has left.
    pub(super) fn forget_remb(&mut self) {
        if let Some(estimator) = &mut self.estimator {
            estimator.forget_remb();
        }
    }

    /// Transport-wide feedback was received.
    pub(super) fn estimate_anew(&mut self, now: Instant) {
        if let Some(estimator) = &mut self.estimator {
            estimator.feedback(now, self.link.twcc.results(), self.link.rtt);
        }
    }

    /// Time has gone by: probes that are due leave.
    pub(super) fn control(&mut self, now: Instant, sink: &mut dyn PacketSink) {
        let Some(estimator) = &mut self.estimator else { return };
        estimator.tick(now, self.link.twcc.last_sent());
        let Some(probe) = estimator.probe_due(now) else { return };
        let (first, before) = (self.link.twcc.next(), self.link.counts.padding_bytes);
        let mut packets = 0;
        for stream in &mut self.streams {
            packets = stream.pad(&mut self.link, now, probe.bytes, probe.packets, sink);
            if packets > 0 {
                break;
            }
        }
        // Without anything to pad with it is tried again later, as after any other probe.
        estimator.probe_sent(now, probe, first, packets, self.link.counts.padding_bytes - before);
    }

    pub(super) fn control_deadline(&self) -> Option<Deadline> {
        let at = self.estimator.as_ref()?.deadline(self.link.twcc.last_sent())?;
        Some(Deadline { at, why: Why::Estimate })
    }
}
