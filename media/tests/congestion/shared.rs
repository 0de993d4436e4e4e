//! Viewers who share a bottleneck.

use super::{Leg, Path, layered, run, s, within};
use crate::viewer::sections;

#[test]
#[ignore = "not reached: sources of any rate end up to twice as far apart as they should"]
fn three_sources_of_any_rate_share_a_path_fairly() {
    let source = |seed| {
        let mut leg = Leg::new(&sections(), &[300], seed);
        leg.follows_up_to = Some(3_000);
        leg
    };
    for starts in [[0, 0, 0], [0, 20_000, 40_000]] {
        let (mut legs, mut path) = ([source(1), source(2), source(3)], Path::new(3_500));
        run(180, &mut legs, &mut path, |ms, _, legs| {
            legs.iter_mut().zip(starts).for_each(|(leg, start)| leg.active = ms >= start);
        });
        let kbps: Vec<u64> = legs.iter().map(|leg| leg.sent_kbps(s(100..180))).collect();
        let fair = kbps.iter().sum::<u64>() / 3;
        assert!(kbps.iter().all(|kbps| kbps.abs_diff(fair) * 100 <= fair * 25), "{starts:?}: {kbps:?}");
        assert!(fair * 3 >= 3_500 * 75 / 100, "{starts:?}: {kbps:?}");
        assert!(path.p95_wait_ms(within(s(60..180))) <= 150, "{}", path.p95_wait_ms(within(s(60..180))));
    }
}

#[test]
fn three_viewers_of_layers_all_see_more_than_the_lowest() {
    let (mut legs, mut path) = ([layered(1), layered(2), layered(3)], Path::new(3_500));
    run(120, &mut legs, &mut path, |ms, _, legs| {
        legs.iter_mut().zip([0, 20_000, 40_000]).for_each(|(leg, start)| leg.active = ms >= start);
    });
    for leg in &legs {
        let good = (600..1_200).filter(|tenth| leg.layer_at(tenth * 100) >= Some(1)).count();
        assert!(good >= 540, "{good} of 600 tenths, {:?}", leg.flows);
        assert!(leg.sound_lost_permille(within(s(42..120))) < 10);
    }
}
