//! The path to viewers: one bottleneck with a drop-tail queue, which several of them may share.

/// Times in microseconds since the beginning.
pub struct Path {
    pub rate_bps: u64,
    pub jitter_us: u64,
    /// What would wait longer is dropped.
    pub queue_us: u64,
    /// Dropped at random, before the queue.
    pub loss_permille: u64,
    /// A shaper lets so much through at once after it was idle; 0: a plain link.
    pub allowance_bytes: u64,
    /// The last packet has left the bottleneck, or would have without the allowance.
    pub free_at_us: u64,
    pub last_us: u64,
    pub random: u64,
    /// When each packet came, and how long it waited.
    pub waited_us: Vec<(u64, u64)>,
}

impl Path {
    /// 300 ms of queue: where RFC 8867 says nothing else.
    pub fn new(kbps: u64) -> Self {
        Self {
            rate_bps: kbps * 1_000,
            jitter_us: 0,
            queue_us: 300_000,
            loss_permille: 0,
            allowance_bytes: 0,
            free_at_us: 0,
            last_us: 0,
            random: 5,
            waited_us: Vec::new(),
        }
    }

    /// One that nothing waits on.
    pub fn wide() -> Self {
        Self::new(1_000_000)
    }

    fn permille(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % 1_000
    }

    /// When a datagram of so many bytes, all headers included, leaves at the other end; none if it is dropped. Nobody overtakes.
    pub fn send(&mut self, now_us: u64, bytes: u64) -> Option<u64> {
        let takes_us = |bytes: u64| bytes * 8_000_000 / self.rate_bps;
        let (takes_us, allowance_us) = (takes_us(bytes), takes_us(self.allowance_bytes));
        let free_at_us = self.free_at_us.max(now_us.saturating_sub(allowance_us));
        let wait_us = free_at_us.saturating_sub(now_us);
        if self.permille() < self.loss_permille || wait_us > self.queue_us {
            return None;
        }
        self.waited_us.push((now_us, wait_us));
        self.free_at_us = free_at_us + takes_us;
        let jitter_us = self.jitter_us * self.permille() / 1_000;
        self.last_us = self.last_us.max(self.free_at_us.max(now_us) + jitter_us);
        Some(self.last_us)
    }

    /// How long 95 of 100 packets waited at most, of those that came at such moments.
    pub fn p95_wait_ms(&self, at_ms: impl Fn(u64) -> bool) -> u64 {
        let within = self.waited_us.iter().filter(|(at, _)| at_ms(at / 1_000));
        let mut waits: Vec<u64> = within.map(|(_, wait)| *wait).collect();
        waits.sort_unstable();
        waits.get(waits.len() * 95 / 100).map_or(0, |wait| wait / 1_000)
    }
}
