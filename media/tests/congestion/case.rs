//! A case of viewers on a path, what is measured in it, and what of that is as it shall be.

use super::source::FRAME_MS;
use super::{Flow, LAYERS, Path, Place, Tcp, step};

/// Sound goes with every layer.
const SOUND_KBPS: u64 = 40;
/// Queues and losses count so long after something has changed; the layers shall be right again a while later.
const SETTLES_S: u64 = 2;
const STEADY_S: u64 = 5;
/// A case is run so often, with frames that leave at other times.
const TURNS: u64 = 5;

/// See the module. Times in seconds, rates in kbit/s.
#[derive(Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    pub seconds: u64,
    pub jitter_ms: u64,
    pub loss_permille: u64,
    pub queue_ms: u64,
    /// One way, of each flow.
    pub delays_ms: &'static [u64],
    /// From when on the path has which rate; none: nothing arrives.
    pub kbps: &'static [(u64, u64)],
    /// The same of the way back, where it is no wider.
    pub back_kbps: &'static [(u64, u64)],
    /// When each flow is active.
    pub active: fn(usize, u64) -> bool,
    /// The source has no layers: its rate follows the estimate, up to so much.
    pub follows_up_to: Option<u64>,
    /// So many flows go the other way: the last ones.
    pub against: usize,
    pub tcp: TcpKind,
    pub wants: Wants,
    /// Which of these are known to be missed.
    pub missed: &'static [Aim],
}

/// TCP beside media.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TcpKind {
    None,
    /// One connection that always has something to send.
    Long,
    /// So many that send 100 to 1,000 kB and rest for ten seconds on average.
    Short(usize),
}

/// What is asked of a case.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Wants {
    /// Figures without a judgement.
    Nothing,
    Usual,
    /// As above, but nothing changes once the best layer has come.
    NoSwitch,
    /// Four fifths of the rate, whatever is lost at random.
    Rate,
}

/// What a case may miss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aim {
    Use,
    Queue,
    Sound,
    Switches,
    Down,
    Back,
}

/// What a case came to.
#[derive(Debug)]
pub struct Measured {
    /// Sound and video that were sent, in percent of the best set of layers that fits.
    pub use_percent: u64,
    /// The same in percent of the best layer that fits an equal share, for each flow.
    pub fair_percent: u64,
    pub p95_ms: u64,
    pub sound_lost_permille: u64,
    /// A minute and flow, in tenths.
    pub switches_tenths: u64,
    /// The longest time until no more was sent than the path takes, once it took less.
    pub down_ms: Option<u64>,
    /// The longest time until as much was sent as shall be, once it took more.
    pub back_ms: Option<u64>,
    /// Mean of each flow in the second half.
    pub kbps: Vec<u64>,
    pub tcp_kbps: u64,
}

pub const CASE: Case = Case {
    name: "",
    seconds: 120,
    jitter_ms: 0,
    loss_permille: 0,
    queue_ms: 300,
    delays_ms: &[50],
    kbps: &[],
    back_kbps: &[],
    active: |_, _| true,
    follows_up_to: None,
    against: 0,
    tcp: TcpKind::None,
    wants: Wants::Usual,
    missed: &[],
};

/// The most that viewers of layers can be sent together, sound and the lowest layer first: everybody is seen.
fn best(kbps: u64, viewers: u64) -> u64 {
    fn more(left: u64, viewers: u64) -> u64 {
        match viewers {
            0 => 0,
            _ => LAYERS
                .iter()
                .filter(|layer| **layer <= left)
                .map(|layer| layer + more(left - layer, viewers - 1))
                .max()
                .unwrap_or(0),
        }
    }
    let sound = viewers * SOUND_KBPS;
    if kbps < sound { 0 } else { sound + more(kbps - sound, viewers) }
}

fn at(rates: &[(u64, u64)], second: u64) -> Option<u64> {
    rates.iter().rev().find(|(from, _)| *from <= second).map(|(_, kbps)| *kbps)
}

/// One of the two ways, with the flows on it.
struct Way {
    legs: std::ops::Range<usize>,
    rates: &'static [(u64, u64)],
}

impl Case {
    fn ways(&self) -> Vec<Way> {
        let (all, there) = (self.delays_ms.len(), self.delays_ms.len() - self.against);
        let ways = [Way { legs: 0..there, rates: self.kbps }, Way { legs: there..all, rates: self.back_kbps }];
        ways.into_iter().filter(|way| !way.legs.is_empty()).collect()
    }

    /// What the path takes; 0 where nothing arrives.
    pub fn path_kbps(&self, second: u64) -> u64 {
        at(self.kbps, second).unwrap_or(0)
    }

    fn active_at(&self, way: &Way, second: u64) -> u64 {
        way.legs.clone().filter(|leg| (self.active)(*leg, second)).count() as u64
    }

    fn best_at(&self, way: &Way, second: u64) -> u64 {
        best(at(way.rates, second).unwrap_or(0), self.active_at(way, second))
    }

    /// Whether anything changes when a second begins, the first of all included.
    fn changes_at(&self, second: u64) -> bool {
        let state = |second| {
            let active = (0..self.delays_ms.len()).map(|leg| (self.active)(leg, second)).collect::<Vec<_>>();
            (at(self.kbps, second), at(self.back_kbps, second), active)
        };
        second == 0 || state(second - 1) != state(second)
    }

    /// Whether nothing has changed for so many seconds.
    pub fn rests(&self, second: u64, for_s: u64) -> bool {
        second >= for_s && !(second + 1 - for_s..=second).any(|second| self.changes_at(second))
    }

    /// `turn`: of those in which frames leave at other times; all together in the first. `look` is shown each millisecond's end.
    pub fn run<F: Flow>(&self, turn: u64, look: impl Fn(u64, &[F], &[Path; 2])) -> (Vec<F>, [Path; 2], Vec<Tcp>) {
        let path = Path {
            jitter_us: self.jitter_ms * 1_000,
            queue_us: self.queue_ms * 1_000,
            random: 5 + turn,
            ..Path::new(1)
        };
        let back = if self.back_kbps.is_empty() { Path::wide() } else { Path::new(1) };
        let mut paths = [path, back];
        let mut legs: Vec<F> = (1..=self.delays_ms.len() as u64).map(F::new).collect();
        let there = legs.len() - self.against;
        for (n, (leg, delay_ms)) in legs.iter_mut().zip(self.delays_ms).enumerate() {
            let phase_ms = turn * (7 + 11 * n as u64) % FRAME_MS;
            self.follows_up_to.into_iter().for_each(|most| leg.follow(most));
            *leg.place() = Place { active: true, phase_ms, way: usize::from(n >= there), delay_ms: *delay_ms };
        }
        let mut tcps: Vec<Tcp> = match self.tcp {
            TcpKind::None => Vec::new(),
            TcpKind::Long => vec![Tcp::new()],
            TcpKind::Short(connections) => (0..connections).map(|_| Tcp::new()).collect(),
        };
        // Of each connection, when it sends again.
        let mut begins_ms = vec![0; tcps.len()];
        let mut random = 11u64;
        let mut permille = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % 1_000
        };
        let rests_ms = |permille: u64| (-10_000.0 * ((permille as f64 + 1.0) / 1_001.0).ln()) as u64;
        if self.tcp != TcpKind::Long {
            begins_ms.iter_mut().for_each(|at| *at = rests_ms(permille()));
        }
        for ms in 0..self.seconds * 1_000 {
            let second = ms / 1_000;
            for (path, rates) in paths.iter_mut().zip([self.kbps, self.back_kbps]) {
                if let Some(kbps) = at(rates, second) {
                    path.rate_bps = (kbps * 1_000).max(1);
                    path.loss_permille = if kbps == 0 { 1_000 } else { self.loss_permille };
                }
            }
            legs.iter_mut().enumerate().for_each(|(n, leg)| leg.place().active = (self.active)(n, second));
            step(ms, &mut legs, &mut paths);
            for (tcp, begins_ms) in tcps.iter_mut().zip(&mut begins_ms) {
                match self.tcp {
                    TcpKind::Long => tcp.has = u64::MAX,
                    // A transfer that has just ended.
                    _ if tcp.is_done() && *begins_ms == u64::MAX => *begins_ms = ms + rests_ms(permille()),
                    _ if tcp.is_done() && ms >= *begins_ms => {
                        tcp.transfer(100_000 + 900 * permille());
                        *begins_ms = u64::MAX;
                    }
                    _ => {}
                }
                tcp.step(ms, &mut paths[0]);
            }
            look(ms, &legs, &paths);
        }
        (legs, paths, tcps)
    }

    /// The worst of each figure in several turns; what each flow had in the first.
    pub fn measure<F: Flow>(&self) -> Measured {
        let first = self.measure_turn::<F>(0);
        (1..TURNS).map(|turn| self.measure_turn::<F>(turn)).fold(first, |one, other| Measured {
            use_percent: one.use_percent.min(other.use_percent),
            fair_percent: one.fair_percent.min(other.fair_percent),
            p95_ms: one.p95_ms.max(other.p95_ms),
            sound_lost_permille: one.sound_lost_permille.max(other.sound_lost_permille),
            switches_tenths: one.switches_tenths.max(other.switches_tenths),
            down_ms: one.down_ms.max(other.down_ms),
            back_ms: one.back_ms.max(other.back_ms),
            ..one
        })
    }

    /// As above, of one turn.
    pub fn measure_turn<F: Flow>(&self, turn: u64) -> Measured {
        let (legs, paths, tcps) = self.run::<F>(turn, |_, _, _| {});
        let legs: Vec<_> = legs.iter().map(Flow::seen).collect();
        let ways = self.ways();
        // What flows on a way, of layers and sound.
        let flows = |way: &Way, ms: u64| -> u64 {
            let active = way.legs.clone().filter(|leg| (self.active)(*leg, ms / 1_000));
            active.map(|leg| SOUND_KBPS + legs[leg].layer_at(ms).map_or(0, |layer| LAYERS[usize::from(layer)])).sum()
        };
        let steady: Vec<u64> = (0..self.seconds).filter(|second| self.rests(*second, STEADY_S)).collect();
        let (mut used, mut possible, mut fair, mut switches, mut flow_seconds) = (0, 0, 0, 0, 0);
        for way in &ways {
            for second in &steady {
                let of_ms = second * 1_000..(second + 1) * 1_000;
                let sent: u64 = way.legs.clone().map(|leg| legs[leg].media_kbps(of_ms.clone())).sum();
                let most = self.best_at(way, *second);
                // What is too much at a time makes up for nothing at another.
                used += sent.min(most);
                possible += most;
                let flows = self.active_at(way, *second).max(1);
                fair += flows * best(at(way.rates, *second).unwrap_or(0) / flows, 1);
                switches += way.legs.clone().map(|leg| legs[leg].changes(of_ms.clone())).sum::<usize>() as u64;
                flow_seconds += self.active_at(way, *second);
            }
        }
        let (mut down_ms, mut back_ms) = (None, None);
        for way in &ways {
            for (from, to) in way.rates.iter().zip(&way.rates[1..]) {
                let (from_kbps, (second, kbps)) = (from.1, *to);
                let until = way.rates.iter().map(|(at, _)| *at).find(|at| *at > second).unwrap_or(self.seconds);
                let mut moments = second * 1_000..until * 1_000;
                let all_ms = (until - second) * 1_000;
                if kbps < from_kbps && kbps > 0 {
                    let down = moments.find(|ms| flows(way, *ms) <= kbps).map_or(all_ms, |ms| ms - second * 1_000);
                    down_ms = down_ms.max(Some(down));
                } else if kbps > from_kbps {
                    let enough = self.best_at(way, second) * 85 / 100;
                    let back = moments.find(|ms| flows(way, *ms) >= enough).map_or(all_ms, |ms| ms - second * 1_000);
                    back_ms = back_ms.max(Some(back));
                }
            }
        }
        let counts = |ms: u64| self.rests(ms / 1_000, SETTLES_S);
        // The worst time between two changes tells: others would hide it.
        let (mut p95_ms, mut sound_lost_permille) = (0, 0);
        for from in (0..self.seconds).filter(|second| self.changes_at(*second)) {
            let to = (from + 1..self.seconds).find(|second| self.changes_at(*second)).unwrap_or(self.seconds);
            let phase = |ms: u64| (from..to).contains(&(ms / 1_000)) && counts(ms);
            for (way, path) in ways.iter().zip(&paths) {
                p95_ms = p95_ms.max(path.p95_wait_ms(phase));
                // What is lost while nothing passes says nothing.
                for leg in way.legs.clone().filter(|_| at(way.rates, from) != Some(0)) {
                    sound_lost_permille = sound_lost_permille.max(legs[leg].sound_lost_permille(phase));
                }
            }
        }
        let half = self.seconds * 500..self.seconds * 1_000;
        Measured {
            use_percent: used * 100 / possible.max(1),
            fair_percent: used * 100 / fair.max(1),
            p95_ms,
            sound_lost_permille,
            switches_tenths: switches * 600 / flow_seconds.max(1),
            down_ms,
            back_ms,
            kbps: legs.iter().map(|leg| leg.media_kbps(half.clone())).collect(),
            tcp_kbps: tcps.iter().map(Tcp::arrived_bytes).sum::<u64>() * 8 / (self.seconds * 1_000),
        }
    }

    /// What of it is not as it shall be.
    pub fn misses(&self, measured: &Measured) -> Vec<Aim> {
        let Measured { use_percent, p95_ms, sound_lost_permille, switches_tenths, down_ms, back_ms, .. } = measured;
        let from_nothing = self.kbps.iter().any(|(_, kbps)| *kbps == 0);
        let usual = matches!(self.wants, Wants::Usual | Wants::NoSwitch);
        let switches_most = if self.wants == Wants::NoSwitch { 0 } else { 20 };
        [
            (Aim::Use, usual && *use_percent < 85 || self.wants == Wants::Rate && *use_percent < 80),
            (Aim::Queue, usual && *p95_ms > 100),
            (Aim::Sound, usual && *sound_lost_permille >= 10),
            (Aim::Switches, usual && *switches_tenths > switches_most),
            (Aim::Down, usual && *down_ms > Some(1_000)),
            (Aim::Back, usual && *back_ms > Some(if from_nothing { 10_000 } else { 5_000 })),
        ]
        .into_iter()
        .filter_map(|(aim, missed)| missed.then_some(aim))
        .collect()
    }

    pub fn row(&self, measured: &Measured) -> String {
        self.row_as(self.name, measured)
    }

    /// The same with the name of who was measured.
    pub fn row_of(&self, who: &str, measured: &Measured) -> String {
        self.row_as(&format!("{}: {who}", self.name), measured)
    }

    fn row_as(&self, name: &str, measured: &Measured) -> String {
        let tenths = |n: u64| format!("{}.{}", n / 10, n % 10);
        let seconds = |ms: &Option<u64>| ms.map_or("–".into(), |ms| format!("{} s", tenths(ms.div_ceil(100))));
        let misses = self.misses(measured);
        let verdict = match (self.wants, &misses[..]) {
            (Wants::Nothing, _) => "none".into(),
            (_, []) => "met".into(),
            (_, misses) => {
                format!("**missed**: {}", misses.iter().map(|aim| aim.word()).collect::<Vec<_>>().join(", "))
            }
        };
        let mut each: Vec<String> = measured.kbps.iter().map(u64::to_string).collect();
        if self.tcp != TcpKind::None {
            each.push(format!("TCP {}", measured.tcp_kbps));
        }
        let (used, fair) = match self.tcp {
            TcpKind::None => (format!("{} %", measured.use_percent), format!("{} %", measured.fair_percent)),
            _ => ("–".into(), "–".into()),
        };
        format!(
            "| {name} | {used} | {fair} | {} ms | {} % | {} | {} | {} | {} | {verdict} |",
            measured.p95_ms,
            tenths(measured.sound_lost_permille),
            tenths(measured.switches_tenths),
            seconds(&measured.down_ms),
            seconds(&measured.back_ms),
            each.join(", "),
        )
    }
}

impl Aim {
    fn word(self) -> &'static str {
        match self {
            Self::Use => "use",
            Self::Queue => "queue",
            Self::Sound => "sound",
            Self::Switches => "switches",
            Self::Down => "down",
            Self::Back => "back",
        }
    }
}

#[test]
fn the_best_set_has_everybody_seen() {
    assert_eq!([39, 189, 190, 1_000, 1_739, 1_740].map(|kbps| best(kbps, 1)), [0, 40, 190, 540, 540, 1_740]);
    assert_eq!((best(3_500, 3), best(4_000, 5), best(1_000, 2)), (2_820, 3_900, 730));
}
