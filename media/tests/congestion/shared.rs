//! Viewers who share a bottleneck.

use super::{Path, layered, run, s, within};

#[test]
fn three_viewers_of_layers_all_see_more_than_the_lowest() {
    let (mut legs, mut path) = ([layered(1), layered(2), layered(3)], Path::new(3_500));
    run(120, &mut legs, &mut path, |ms, _, legs| {
        legs.iter_mut().zip([0, 20_000, 40_000]).for_each(|(leg, start)| leg.place.active = ms >= start);
    });
    for leg in &legs {
        let good = (600..1_200).filter(|tenth| leg.seen.layer_at(tenth * 100) >= Some(1)).count();
        assert!(good >= 540, "{good} of 600 tenths, {:?}", leg.seen.flows);
        assert!(leg.seen.sound_lost_permille(within(s(42..120))) < 10);
    }
}
