//! What a leg sent, and what became of it.

use std::ops::Range;

/// A tenth of a second of a leg.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tenth {
    /// The estimate at its end; 0 while there is none.
    pub target_kbps: u64,
    /// Sent in it, all headers included.
    pub bytes: u64,
    /// Of these, sound and video: neither padding nor RTCP.
    pub media_bytes: u64,
}

/// Times in milliseconds.
#[derive(Default)]
pub struct Record {
    /// What flows, and since when.
    pub flows: Vec<(u64, Option<u8>)>,
    pub tenths: Vec<Tenth>,
    tenth: Tenth,
    /// When a packet of sound left, and whether it arrived.
    pub sound: Vec<(u64, bool)>,
}

impl Record {
    /// A packet was sent, of so many bytes with all headers. `media`: it is sound or video, neither padding nor RTCP.
    pub fn sent(&mut self, bytes: u64, media: bool) {
        self.tenth.bytes += bytes;
        self.tenth.media_bytes += if media { bytes } else { 0 };
    }

    /// A millisecond has passed.
    pub fn step(&mut self, ms: u64, flowing: Option<u8>, target_kbps: u64) {
        if self.flows.last().map(|(_, flows)| *flows) != Some(flowing) {
            self.flows.push((ms, flowing));
        }
        if ms.is_multiple_of(100) {
            self.tenths.push(Tenth { target_kbps, ..std::mem::take(&mut self.tenth) });
        }
    }

    pub fn layer_at(&self, ms: u64) -> Option<u8> {
        self.flows.iter().rev().find(|(at, _)| *at <= ms).and_then(|(_, layer)| *layer)
    }

    /// When this layer or a better one flows first after a moment, in ms after it.
    pub fn reaches(&self, layer: u8, after_ms: u64) -> Option<u64> {
        (after_ms..self.tenths.len() as u64 * 100).find(|ms| self.layer_at(*ms) >= Some(layer)).map(|ms| ms - after_ms)
    }

    /// When less than this layer flows first after a moment, in ms after it.
    pub fn leaves(&self, layer: u8, after_ms: u64) -> Option<u64> {
        (after_ms..self.tenths.len() as u64 * 100).find(|ms| self.layer_at(*ms) < Some(layer)).map(|ms| ms - after_ms)
    }

    /// Changes of what flows within a time.
    pub fn changes(&self, of_ms: Range<u64>) -> usize {
        self.flows.iter().filter(|(at, _)| of_ms.contains(at)).count()
    }

    /// The tenths of a time.
    pub fn tenths(&self, of_ms: Range<u64>) -> &[Tenth] {
        &self.tenths[of_ms.start as usize / 100..of_ms.end as usize / 100]
    }

    /// Mean of what was sent, in kbit/s.
    pub fn sent_kbps(&self, of_ms: Range<u64>) -> u64 {
        let tenths = self.tenths(of_ms);
        tenths.iter().map(|tenth| tenth.bytes * 8).sum::<u64>() / (tenths.len() as u64 * 100)
    }

    /// The same of sound and video alone.
    pub fn media_kbps(&self, of_ms: Range<u64>) -> u64 {
        let tenths = self.tenths(of_ms);
        tenths.iter().map(|tenth| tenth.media_bytes * 8).sum::<u64>() / (tenths.len() as u64 * 100)
    }

    /// Mean and lowest of the estimate, in kbit/s.
    pub fn estimated_kbps(&self, of_ms: Range<u64>) -> (u64, u64) {
        let targets = || self.tenths(of_ms.clone()).iter().map(|tenth| tenth.target_kbps);
        (targets().sum::<u64>() / targets().count() as u64, targets().min().unwrap_or(0))
    }

    /// Share of sound that did not arrive, in thousandths, of what left at such moments.
    pub fn sound_lost_permille(&self, at_ms: impl Fn(u64) -> bool) -> u64 {
        let (mut all, mut lost) = (0, 0);
        for (_, came) in self.sound.iter().filter(|(at, _)| at_ms(*at)) {
            all += 1;
            lost += u64::from(!came);
        }
        lost * 1_000 / all.max(1)
    }
}
