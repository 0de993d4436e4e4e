//! Transport-wide feedback (draft-holmer-rmcat-transport-wide-cc-extensions-01 §3.1).
//!
//! ```text
//! | sender SSRC | media SSRC | base seq (16) | status count (16) | reference time (24) | feedback count (8) |
//! | packet chunks, 16 bits each … | receive deltas, 8 or 16 bits each … | padding |
//! ```

use super::{RtcpError, emit, fmt, pt, take};

/// Unit of receive deltas.
pub const TICK_US: i64 = 250;
/// Ticks in one unit (64 ms) of the reference time.
const REFERENCE_TICKS: i64 = 256;

const NOT_RECEIVED: u8 = 0;
const SMALL_DELTA: u8 = 1;
const LARGE_DELTA: u8 = 2;

/// One feedback message, checked: every status that its chunks announce has its delta.
#[derive(Debug, Clone, Copy)]
pub struct Twcc<'a> {
    /// Who reports.
    pub sender: u32,
    /// A stream of the transport; the report is about all of them.
    pub media: u32,
    /// Transport-wide number of the first packet reported on.
    pub base_seq: u16,
    /// Packets reported on.
    pub count: u16,
    /// Reference time on the reporter's clock, in units of 64 ms, 24 bits with a sign: −2^23 to 2^23 − 1.
    pub reference: i32,
    /// Number of the report, modulo 256.
    pub feedback_count: u8,
    chunks: &'a [[u8; 2]],
    deltas: &'a [u8],
}

/// What is reported of one packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TwccStatus {
    /// Transport-wide number.
    pub seq: u16,
    /// When it arrived, in ticks of 250 µs after the reference time; `None`: not yet.
    pub ticks: Option<i64>,
}

impl<'a> Twcc<'a> {
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, RtcpError> {
        let (sender, rest) = take::<4>(body)?;
        let (media, rest) = take::<4>(rest)?;
        let ([b1, b0, c1, c0, r2, r1, r0, feedback_count], rest) = take::<8>(rest)?;
        let count = u16::from_be_bytes([c1, c0]);
        let (chunks, _) = rest.as_chunks::<2>();
        let (used, delta_bytes) = extent(chunks, count)?;
        let need = used * 2 + delta_bytes;
        let (Some(chunks), Some(deltas)) = (chunks.get(..used), rest.get(used * 2..need)) else {
            return Err(RtcpError::Truncated { need, got: rest.len() });
        };
        Ok(Self {
            sender: u32::from_be_bytes(sender),
            media: u32::from_be_bytes(media),
            base_seq: u16::from_be_bytes([b1, b0]),
            count,
            reference: i32::from_be_bytes([r2, r1, r0, 0]) >> 8,
            feedback_count,
            chunks,
            deltas,
        })
    }

    /// The statuses in order of number, `count` of them. A few bytes can announce 65,535: take what you can use.
    pub fn statuses(&self) -> TwccStatuses<'a> {
        TwccStatuses {
            chunks: self.chunks.iter(),
            run: Run::Same { symbol: NOT_RECEIVED, left: 0 },
            deltas: self.deltas,
            seq: self.base_seq,
            left: self.count,
            ticks: 0,
        }
    }
}

/// Chunks that `count` statuses take, and bytes of their deltas; in time linear in the chunks.
fn extent(chunks: &[[u8; 2]], count: u16) -> Result<(usize, usize), RtcpError> {
    let mut left = count;
    let (mut used, mut delta_bytes) = (0, 0);
    while left > 0 {
        let Some(chunk) = chunks.get(used) else {
            return Err(RtcpError::Truncated { need: (used + 1) * 2, got: used * 2 });
        };
        used += 1;
        let mut run = Run::read(*chunk);
        if let Run::Same { symbol, left: announced } = run {
            let taken = announced.min(left);
            delta_bytes += usize::from(taken) * delta_len(symbol)?;
            left -= taken;
            continue;
        }
        while left > 0
            && let Some(symbol) = run.next()
        {
            delta_bytes += delta_len(symbol)?;
            left -= 1;
        }
    }
    Ok((used, delta_bytes))
}

fn delta_len(symbol: u8) -> Result<usize, RtcpError> {
    match symbol {
        NOT_RECEIVED => Ok(0),
        SMALL_DELTA => Ok(1),
        LARGE_DELTA => Ok(2),
        _ => Err(RtcpError::TwccSymbol),
    }
}

/// One packet chunk on its way through the statuses (§3.1.1–3.1.4).
#[derive(Debug, Clone, Copy)]
enum Run {
    /// `0 | symbol(2) | run length(13)`
    Same { symbol: u8, left: u16 },
    /// `1 | 0 | 14 symbols of one bit` or `1 | 1 | 7 symbols of two bits`; the next symbol is in the top bits.
    Each { symbols: u16, bits: u8, left: u8 },
}

impl Run {
    fn read(chunk: [u8; 2]) -> Self {
        let chunk = u16::from_be_bytes(chunk);
        if chunk & 0x8000 == 0 {
            return Run::Same { symbol: (chunk >> 13 & 3) as u8, left: chunk & 0x1fff };
        }
        match chunk & 0x4000 {
            0 => Run::Each { symbols: chunk << 2, bits: 1, left: 14 },
            _ => Run::Each { symbols: chunk << 2, bits: 2, left: 7 },
        }
    }

    fn next(&mut self) -> Option<u8> {
        match self {
            Run::Same { symbol, left } => {
                *left = left.checked_sub(1)?;
                Some(*symbol)
            }
            Run::Each { symbols, bits, left } => {
                *left = left.checked_sub(1)?;
                let symbol = (*symbols >> (16 - *bits)) as u8;
                *symbols <<= *bits;
                Some(symbol)
            }
        }
    }
}

/// See [`Twcc::statuses`].
#[derive(Debug, Clone)]
pub struct TwccStatuses<'a> {
    chunks: std::slice::Iter<'a, [u8; 2]>,
    run: Run,
    deltas: &'a [u8],
    seq: u16,
    left: u16,
    ticks: i64,
}

impl TwccStatuses<'_> {
    fn symbol(&mut self) -> Option<u8> {
        loop {
            if let Some(symbol) = self.run.next() {
                return Some(symbol);
            }
            self.run = Run::read(*self.chunks.next()?);
        }
    }

    fn delta(&mut self, symbol: u8) -> Option<i64> {
        match symbol {
            SMALL_DELTA => {
                let (&delta, rest) = self.deltas.split_first()?;
                self.deltas = rest;
                Some(i64::from(delta))
            }
            LARGE_DELTA => {
                let (&delta, rest) = self.deltas.split_first_chunk::<2>()?;
                self.deltas = rest;
                Some(i64::from(i16::from_be_bytes(delta)))
            }
            _ => None,
        }
    }
}

impl Iterator for TwccStatuses<'_> {
    type Item = TwccStatus;

    fn next(&mut self) -> Option<TwccStatus> {
        self.left = self.left.checked_sub(1)?;
        let symbol = self.symbol()?;
        let seq = self.seq;
        self.seq = seq.wrapping_add(1);
        let ticks = self.delta(symbol).map(|delta| {
            self.ticks += delta;
            self.ticks
        });
        Some(TwccStatus { seq, ticks })
    }
}

/// Writes the feedback of one receiver: clients of ours and simulated ones.
#[derive(Debug, Clone)]
pub struct TwccWriter {
    sender: u32,
    media: u32,
    feedback_count: u8,
    reference: i64,
}

impl TwccWriter {
    /// `sender`: who reports; `media`: any stream of the transport.
    pub fn new(sender: u32, media: u32) -> Self {
        Self { sender, media, feedback_count: 0, reference: 0 }
    }

    /// Appends one feedback on the packets from `base_seq` on, whose arrivals are in µs since an epoch of the
    /// receiver; `None` did not arrive. Answers how many it covers: fewer than given where two arrivals are more
    /// than 8.19 s apart (a delta has 16 bits) or more than 65,535 are given; write the rest as the next feedback.
    pub fn write(&mut self, out: &mut Vec<u8>, base_seq: u16, arrivals_us: &[Option<u64>]) -> usize {
        let ticks = |us: u64| (us / TICK_US as u64) as i64;
        if let Some(first) = arrivals_us.iter().flatten().next() {
            self.reference = ticks(*first) / REFERENCE_TICKS;
        }
        let mut last = self.reference * REFERENCE_TICKS;
        let mut deltas: Vec<Option<i16>> = Vec::with_capacity(arrivals_us.len());
        for arrival in arrivals_us.iter().take(usize::from(u16::MAX)) {
            match arrival.map(|us| i16::try_from(ticks(us) - last)) {
                None => deltas.push(None),
                Some(Ok(delta)) => {
                    last += i64::from(delta);
                    deltas.push(Some(delta));
                }
                Some(Err(_)) => break,
            }
        }
        self.emit(out, base_seq, &deltas);
        self.feedback_count = self.feedback_count.wrapping_add(1);
        deltas.len()
    }

    fn emit(&self, out: &mut Vec<u8>, base_seq: u16, deltas: &[Option<i16>]) {
        let start = out.len();
        let mut padding = 0;
        emit(out, pt::RTPFB, fmt::TWCC, |out| {
            out.extend_from_slice(&self.sender.to_be_bytes());
            out.extend_from_slice(&self.media.to_be_bytes());
            out.extend_from_slice(&base_seq.to_be_bytes());
            out.extend_from_slice(&(deltas.len() as u16).to_be_bytes());
            let reference = (self.reference as u32) << 8 | u32::from(self.feedback_count);
            out.extend_from_slice(&reference.to_be_bytes());
            let symbols: Vec<u8> = deltas.iter().map(|d| symbol(*d)).collect();
            write_chunks(out, &symbols);
            for delta in deltas.iter().flatten() {
                match u8::try_from(*delta) {
                    Ok(small) => out.push(small),
                    Err(_) => out.extend_from_slice(&delta.to_be_bytes()),
                }
            }
            padding = (4 - (out.len() - start) % 4) % 4;
            out.extend((1..=padding).map(|i| if i == padding { padding as u8 } else { 0 }));
        });
        if let (1.., Some(first)) = (padding, out.get_mut(start)) {
            *first |= 0x20;
        }
    }
}

fn symbol(delta: Option<i16>) -> u8 {
    match delta {
        None => NOT_RECEIVED,
        Some(0..=255) => SMALL_DELTA,
        Some(_) => LARGE_DELTA,
    }
}

fn write_chunks(out: &mut Vec<u8>, symbols: &[u8]) {
    let mut rest = symbols;
    while let Some(&symbol) = rest.first() {
        let run = rest.iter().take(0x1fff).take_while(|s| **s == symbol).count();
        let next14 = rest.get(..14).unwrap_or(rest);
        let (chunk, taken) = if run >= 14 || run == rest.len() {
            (u16::from(symbol) << 13 | run as u16, run)
        } else if next14.contains(&LARGE_DELTA) {
            let next7 = rest.get(..7).unwrap_or(rest);
            (0xc000 | packed(next7, 2), next7.len())
        } else {
            (0x8000 | packed(next14, 1), next14.len())
        };
        out.extend_from_slice(&chunk.to_be_bytes());
        rest = rest.get(taken..).unwrap_or_default();
    }
}

/// Symbols of `bits` each in the lower 14 bits, the first on top.
fn packed(symbols: &[u8], bits: usize) -> u16 {
    symbols.iter().enumerate().fold(0, |all, (i, s)| all | u16::from(*s) << (14 - bits * (i + 1)))
}

#[cfg(test)]
mod tests {
    use super::super::{Compound, Packet};
    use super::*;
    use proptest::prelude::*;

    fn read(bytes: &[u8]) -> Result<Twcc<'_>, RtcpError> {
        match Compound::new(bytes).next().unwrap()? {
            Packet::Twcc(twcc) => Ok(twcc),
            other => panic!("{other:?}"),
        }
    }

    /// Chunks worked out by hand from §3.1.3, §3.1.4: run of 4 small deltas; 14 one-bit symbols; 7 two-bit symbols.
    #[test]
    fn chunks_mean_what_the_draft_says() {
        let mut bytes = vec![0x8f, 205, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0xff, 0xfe, 0, 25, 0xff, 0xff, 0xff, 9];
        bytes.extend_from_slice(&[0b0010_0000, 0b0000_0100]); // four small
        bytes.extend_from_slice(&[0b1010_0000, 0b0000_0001]); // 1, eleven zeros, 0, 1
        bytes.extend_from_slice(&[0b1100_0110, 0b0000_0000]); // 0 1 2 0 0 0 0
        bytes.extend_from_slice(&[4, 0, 255, 1, 10, 20, 7]); // the small ones
        bytes.extend_from_slice(&(-3i16).to_be_bytes()); // the large one
        bytes.push(0);
        assert_eq!(bytes.len() % 4, 0);
        bytes[3] = (bytes.len() / 4 - 1) as u8;
        let twcc = read(&bytes).unwrap();
        assert_eq!((twcc.base_seq, twcc.count, twcc.reference, twcc.feedback_count), (65_534, 25, -1, 9));
        let mut expected = vec![None; 25];
        // Sums of the deltas in order: 4, 4, 259, 260 | 270 and 290 | 297 and 294.
        for (i, ticks) in [(0, 4), (1, 4), (2, 259), (3, 260), (4, 270), (17, 290), (19, 297), (20, 294)] {
            expected[i] = Some(ticks);
        }
        let statuses: Vec<_> = twcc.statuses().collect();
        assert_eq!(statuses.iter().map(|s| s.ticks).collect::<Vec<_>>(), expected);
        assert_eq!(statuses.iter().map(|s| s.seq).take(4).collect::<Vec<_>>(), [65_534, 65_535, 0, 1]);
    }

    #[test]
    fn missing_deltas_missing_chunks_and_the_reserved_symbol_are_refused() {
        let with = |tail: &[u8], count: u8| {
            let mut bytes = vec![0x8f, 205, 0, 5, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, count, 0, 0, 0, 0];
            bytes.extend_from_slice(tail);
            read(&bytes).err()
        };
        assert_eq!(with(&[0x20, 2, 1, 1], 2), None);
        assert_eq!(with(&[0x20, 3, 1, 1], 3), Some(RtcpError::Truncated { need: 5, got: 4 }));
        assert_eq!(with(&[0, 1, 0, 1], 3), Some(RtcpError::Truncated { need: 6, got: 4 }));
        assert_eq!(with(&[0x60, 1, 0, 0], 1), Some(RtcpError::TwccSymbol));
        assert_eq!(with(&[0xc3, 0, 0, 0], 7), Some(RtcpError::TwccSymbol));
    }

    proptest! {
        #[test]
        fn feedback_reads_back_to_250_us(
            base: u16,
            start_us in 0u64..1 << 40,
            steps in proptest::collection::vec((any::<bool>(), prop_oneof![0u64..70_000, 0u64..4_000_000]), 0..400),
            run in 0usize..100,
        ) {
            let mut at = start_us;
            let mut arrivals: Vec<Option<u64>> = steps
                .iter()
                .map(|(arrived, step)| { at += step; arrived.then_some(at) })
                .collect();
            arrivals.extend(std::iter::repeat_n(Some(at), run));
            let mut writer = TwccWriter::new(1, 2);
            let (mut out, mut done) = (Vec::new(), 0);
            let mut read_back = Vec::new();
            while done < arrivals.len() {
                out.clear();
                let seq = base.wrapping_add(done as u16);
                let n = writer.write(&mut out, seq, &arrivals[done..]);
                let twcc = read(&out).unwrap();
                prop_assert_eq!((twcc.base_seq, usize::from(twcc.count)), (seq, n));
                let statuses: Vec<_> = twcc.statuses().collect();
                prop_assert_eq!(statuses.len(), n);
                let reference = i64::from(twcc.reference & 0xff_ffff) * REFERENCE_TICKS;
                let wrap = (0x100_0000 * REFERENCE_TICKS) as u64;
                read_back.extend(statuses.iter().map(|s| s.ticks.map(|t| (reference + t) as u64 % wrap)));
                prop_assert!(n > 0 || arrivals[done..].is_empty());
                done += n;
            }
            let wrap = (0x100_0000 * REFERENCE_TICKS) as u64;
            let expected: Vec<_> = arrivals.iter().map(|a| a.map(|us| us / TICK_US as u64 % wrap)).collect();
            prop_assert_eq!(read_back, expected);
        }
    }
}
