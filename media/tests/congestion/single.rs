//! One viewer alone on a path.

use super::{Leg, Path, layered, run, s, watch, within};
use crate::viewer::sections;

#[test]
fn a_clean_path_has_the_best_layer_within_two_seconds_and_keeps_it() {
    let (leg, path) = watch(120, Path::new(20_000), |_| 20_000);
    assert!(leg.seen.reaches(2, 0) <= Some(2_000), "{:?}", leg.seen.flows);
    assert_eq!(leg.seen.changes(s(2..120)), 0, "{:?}", leg.seen.flows);
    let (_, lowest) = leg.seen.estimated_kbps(s(2..120));
    assert!(lowest >= 1_900, "{lowest}");
    assert_eq!((leg.seen.sound_lost_permille(within(s(0..120))), path.p95_wait_ms(within(s(0..120))) <= 20), (0, true));
}

#[test]
fn a_path_that_narrows_is_followed_at_once_and_one_that_widens_soon() {
    let (leg, path) = watch(60, Path::new(3_000), |at| if (20..40).contains(&at) { 600 } else { 3_000 });
    let (down, back) = (leg.seen.leaves(2, 20_000), leg.seen.reaches(2, 40_000));
    assert!(down.is_some_and(|ms| ms <= 1_000) && back.is_some_and(|ms| ms <= 5_000), "{:?}", leg.seen.flows);
    assert_eq!(leg.seen.layer_at(39_000), Some(1), "{:?}", leg.seen.flows);
    assert_eq!(leg.seen.changes(s(45..60)), 0, "{:?}", leg.seen.flows);
    assert!(path.p95_wait_ms(within(s(22..40))) <= 100, "{} {:?}", path.p95_wait_ms(within(s(22..40))), leg.seen.flows);
    assert_eq!(leg.seen.sound_lost_permille(within(s(22..60))), 0);
}

#[test]
fn a_queue_that_grows_slowly_is_emptied_and_stays_empty() {
    // 1 to 4 % too much is sent: no trend is above any threshold, and once the queue is full few are lost.
    for kbps in [1_680, 1_700, 1_720] {
        let (leg, path) = watch(120, Path::new(3_000), |at| if at < 20 { 3_000 } else { kbps });
        let p95: Vec<u64> = (20..120).step_by(10).map(|at| path.p95_wait_ms(within(s(at..at + 10)))).collect();
        assert!(p95.iter().all(|p95| *p95 <= 150), "{kbps}: {p95:?}, {:?}", leg.seen.flows);
        assert!(path.p95_wait_ms(within(s(22..120))) <= 100, "{kbps}: {p95:?}");
        assert_eq!(leg.seen.sound_lost_permille(within(s(20..120))), 0, "{kbps}");
        assert_eq!(leg.seen.layer_at(119_000), Some(1), "{kbps}: {:?}", leg.seen.flows);
    }
}

#[test]
fn what_just_fits_is_found_soon() {
    let (leg, path) = watch(120, Path::new(2_000), |_| 2_000);
    assert!(
        leg.seen.reaches(2, 0) <= Some(2_000) && leg.seen.sent_kbps(s(10..120)) >= 1_740 * 85 / 100,
        "{:?}",
        leg.seen.flows
    );
    assert!(path.p95_wait_ms(within(s(2..120))) <= 100);
}

#[test]
fn random_loss_without_a_queue_is_no_congestion() {
    for loss_permille in [20, 50, 100] {
        let (leg, _) = watch(60, Path { loss_permille, ..Path::new(20_000) }, |_| 20_000);
        let kbps = leg.seen.sent_kbps(s(0..60));
        assert!(kbps >= 1_740 * 8 / 10, "{loss_permille}: {kbps}, {:?}", leg.seen.flows);
    }
}

#[test]
fn jitter_is_no_congestion() {
    for jitter_us in [30_000, 60_000] {
        let (leg, _) = watch(120, Path { jitter_us, ..Path::new(3_000) }, |_| 3_000);
        assert!(
            leg.seen.reaches(2, 0) <= Some(2_500) && leg.seen.changes(s(5..120)) <= 2,
            "{jitter_us}: {:?}",
            leg.seen.flows
        );
    }
}

#[test]
fn a_longer_way_is_no_congestion_for_long() {
    let (mut legs, mut path) = ([layered(7)], Path::new(20_000));
    run(60, &mut legs, &mut path, |ms, _, legs| legs[0].place.delay_ms = if ms < 20_000 { 50 } else { 130 });
    let leg = &legs[0];
    assert_eq!(leg.seen.layer_at(35_000), Some(2), "{:?}", leg.seen.flows);
    assert!(leg.seen.changes(s(20..60)) <= 2 && leg.seen.estimated_kbps(s(20..60)).1 >= 600, "{:?}", leg.seen.flows);
}

#[test]
fn a_short_queue_that_drops_and_a_policer_bring_the_rate_down() {
    for (queue_us, allowance_bytes) in [(30_000, 0), (5_000, 32_000), (300_000, 32_000)] {
        let (leg, _) = watch(120, Path { queue_us, allowance_bytes, ..Path::new(1_000) }, |_| 1_000);
        let best: usize = (0..1_200).filter(|tenth| leg.seen.layer_at(tenth * 100) == Some(2)).count();
        assert!(
            best <= 60,
            "{queue_us} us, {allowance_bytes} bytes: {best} tenths above the path, {:?}",
            leg.seen.flows
        );
        assert_eq!(leg.seen.layer_at(119_000), Some(1));
        assert!(leg.seen.sound_lost_permille(within(s(0..120))) < 10);
    }
}

#[test]
fn who_has_little_is_heard_and_seldom_probed() {
    let (leg, path) = watch(120, Path::new(600), |_| 600);
    assert!((10..120).all(|at| leg.seen.layer_at(at * 1_000) == Some(1)), "{:?}", leg.seen.flows);
    assert_eq!(leg.seen.sound_lost_permille(within(s(2..120))), 0);
    let stats = leg.egress().stats();
    assert!(stats.probes <= 12, "{} bursts; frames say that there is no more", stats.probes);
    assert!(path.p95_wait_ms(within(s(2..120))) <= 50);
}

#[test]
fn nothing_arrives_for_ten_seconds_and_all_is_back_in_ten() {
    let (mut legs, mut path) = ([layered(7)], Path::new(3_000));
    run(60, &mut legs, &mut path, |ms, path, _| {
        path.loss_permille = if (20_000..30_000).contains(&ms) { 1_000 } else { 0 };
    });
    let leg = &legs[0];
    assert!(leg.seen.estimated_kbps(29_500..30_000).0 <= 200, "{:?}", leg.seen.tenths);
    assert!(leg.seen.reaches(2, 30_000).is_some_and(|ms| ms <= 10_000), "{:?}", leg.seen.flows);
}

#[test]
fn a_viewer_without_retransmissions_gets_no_padding_and_an_estimate_from_its_media() {
    let mut sections = sections();
    sections[crate::viewer::VIDEO].rtx_ssrc = None;
    let (mut legs, mut path) = ([Leg::new(&sections, &super::LAYERS, 7)], Path::new(20_000));
    run(30, &mut legs, &mut path, |_, _, _| {});
    let leg = &legs[0];
    assert_eq!((leg.seen.layer_at(29_000), leg.egress().stats().padding_bytes), (Some(1), 0));
    // What media proves: one and a half times what arrives.
    assert!((750..900).contains(&leg.seen.estimated_kbps(s(20..30)).0), "{:?}", leg.seen.estimated_kbps(s(20..30)));
}

/// A publisher's own losses are holes in what is forwarded, not on the viewer's way.
#[test]
fn a_lossy_publisher_lowers_no_estimate() {
    let (mut legs, mut path) = ([layered(3)], Path::new(20_000));
    legs[0].publisher_loses_permille = 100;
    run(60, &mut legs, &mut path, |_, _, _| {});
    let leg = &legs[0];
    assert!(leg.seen.reaches(2, 0) <= Some(2_000) && leg.seen.changes(s(2..60)) == 0, "{:?}", leg.seen.flows);
    let (_, lowest) = leg.seen.estimated_kbps(s(2..60));
    assert!(lowest >= 1_900, "{lowest}");
}

/// Where nothing is known of a path a layer may be more than the guess; what arrives of it is known.
#[test]
fn a_layer_above_the_first_guess_stays_where_the_path_takes_it() {
    for kbps in [650, 800, 1_100] {
        let (mut legs, mut path) = ([Leg::new(&sections(), &[150, kbps], 1)], Path::new(20_000));
        run(60, &mut legs, &mut path, |_, _, _| {});
        let leg = &legs[0];
        assert!(
            leg.seen.reaches(1, 0) <= Some(2_000) && leg.seen.changes(s(2..60)) == 0,
            "{kbps}: {:?}",
            leg.seen.flows
        );
    }
}

/// Video is three times what the path takes. From two seconds on sound comes as if there were no video.
#[test]
fn sound_goes_past_video_that_is_three_times_the_path() {
    let (leg, _) = watch(60, Path::new(20_000), |at| if at < 20 { 20_000 } else { 580 });
    let p99_us = |from_ms: u64, to_ms: u64| {
        let waits = leg.sound_waits_us.iter().filter(|(at, _)| (from_ms..to_ms).contains(at));
        let mut waits: Vec<u64> = waits.map(|(_, wait)| *wait).collect();
        waits.sort_unstable();
        waits[waits.len() * 99 / 100]
    };
    let (idle, full) = (p99_us(10_000, 20_000), p99_us(22_000, 60_000));
    println!("sound waits {idle} us at the 99th percentile before, {full} us from two seconds on");
    assert!(full <= idle + 20_000, "{idle} and {full} us, {:?}", leg.seen.flows);
    assert_eq!(leg.seen.sound_lost_permille(within(s(22..60))), 0);
}
