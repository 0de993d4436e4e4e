//! Which layer of a track a viewer is sent, from how it looks at the track and from what there is: pure.

use crate::api::View;
use rondo_media::receive::{LayerInfo, LayerMask};
use rondo_media::send::LayersMax;

/// A layer, and how much of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// Number of the layer.
    pub layer: u8,
    /// What is sent of it.
    pub max: LayersMax,
}

impl Default for Choice {
    fn default() -> Self {
        Self { layer: 0, max: LayersMax::ALL }
    }
}

/// What is sent now, and what would be sent if it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chosen {
    /// `None`: no layer comes.
    pub now: Option<Choice>,
    /// The layers that are to come: the one that fills the place best of all that ever came; while that does not, those
    /// up to it, from what comes or, where nothing does, from the smallest; and what may be better and never came.
    pub wished: LayerMask,
    /// The place of the layer that would do, among all that ever came.
    pub top: usize,
}

/// The smallest layer that fills the size the picture is shown at; where sizes are not known, or nothing was said, the
/// best one. Of its frames so many as are of use.
///
/// `layers`: lowest quality first.
pub fn choose(layers: &[LayerInfo], view: &View) -> Chosen {
    let best = |among: fn(&LayerInfo) -> bool| {
        let mut found = None;
        for (place, info) in layers.iter().enumerate().filter(|(_, info)| among(info)) {
            found = Some((place, info));
            if fills(info, view) {
                break;
            }
        }
        found
    };
    let (now, ever) = (best(|info| info.available), best(|info| info.known));
    let mut wished = LayerMask::NONE;
    if let Some((top, info)) = ever {
        let from = now.map_or(0, |(place, _)| place).min(top);
        let known = layers.iter().take(top + 1).skip(from).filter(|info| info.known);
        wished = known.fold(LayerMask::of(info.layer), |all, info| all.with(info.layer));
    }
    if !ever.is_some_and(|(_, info)| fills(info, view)) {
        wished = layers.iter().filter(|info| !info.known).fold(wished, |all, info| all.with(info.layer));
    }
    let choice = |(_, info): (usize, &LayerInfo)| Choice {
        layer: info.layer,
        max: LayersMax { temporal: temporal_max(info, view), spatial: spatial_max(info, view) },
    };
    Chosen { now: now.map(choice), wished, top: ever.map_or(0, |(place, _)| place) }
}

/// The smallest layer that ever came.
pub fn smallest(layers: &[LayerInfo]) -> Option<u8> {
    layers.iter().find(|info| info.known).map(|info| info.layer)
}

/// Whether the picture need not be enlarged by more than a quarter, with its sides in proportion, to be shown.
fn fills(info: &LayerInfo, view: &View) -> bool {
    info.size.is_some_and(|size| size_fills(size, view))
}

fn size_fills((width, height): (u16, u16), view: &View) -> bool {
    let side = |have: u16, want: Option<u32>| want.map(|want| u64::from(have) * 5 >= u64::from(want) * 4);
    // The side that is reached first bounds the picture.
    match (side(width, view.width_px), side(height, view.height_px)) {
        (None, None) => false,
        (wide, high) => wide == Some(true) || high == Some(true),
    }
}

/// The lowest spatial layer inside the stream that fills the place.
fn spatial_max(info: &LayerInfo, view: &View) -> u8 {
    let Some(spatial) = &info.spatial else { return LayersMax::ALL.spatial };
    let below = spatial.sizes().split_last().map_or(&[][..], |(_, below)| below);
    below.iter().position(|size| size_fills(*size, view)).map_or(LayersMax::ALL.spatial, |layer| layer as u8)
}

/// Each temporal layer left out halves the frames.
fn temporal_max(info: &LayerInfo, view: &View) -> u8 {
    let (Some(fps), Some(wanted)) = (info.fps, view.fps_max) else { return LayersMax::ALL.temporal };
    let mut left = (info.temporal_max, u32::from(fps));
    while left.0 > 0 && left.1 / 2 >= wanted.max(1) {
        left = (left.0 - 1, left.1 / 2);
    }
    if left.0 == info.temporal_max { LayersMax::ALL.temporal } else { left.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rondo_media::codec::Codec;

    /// A layer whose height is not known has not come yet, or does not tell.
    fn layer(layer: u8, height: Option<u16>, available: bool) -> LayerInfo {
        let size = height.map(|height| (height * 16 / 9, height));
        let known = available || size.is_some();
        LayerInfo {
            layer,
            available,
            known,
            bits_per_second: None,
            fps: Some(30),
            size,
            temporal_max: 2,
            spatial: None,
        }
    }

    fn view(width_px: Option<u32>, height_px: Option<u32>) -> View {
        View { width_px, height_px, ..View::default() }
    }

    fn chosen(layers: &[LayerInfo], view: View) -> Option<u8> {
        choose(layers, &view).now.map(|choice| choice.layer)
    }

    #[test]
    fn the_smallest_that_fills_the_place_else_the_best_there_is() {
        // Offered in the order f, q, h.
        let all = [layer(1, Some(180), true), layer(2, Some(360), true), layer(0, Some(720), true)];
        for (width, height, want) in [
            (Some(320), Some(180), 1),
            (Some(400), Some(225), 1),
            (Some(404), Some(230), 2),
            (None, Some(230), 2),
            (Some(900), None, 0),
            // Beside the picture the place is empty: its height counts.
            (Some(1_920), Some(200), 1),
            (Some(4_000), Some(4_000), 0),
            (Some(0), Some(0), 1),
            (None, None, 0),
        ] {
            assert_eq!(chosen(&all, view(width, height)), Some(want), "{width:?} {height:?}");
        }
        let two = [layer(1, Some(180), true), layer(2, Some(360), false), layer(0, Some(720), true)];
        assert_eq!(chosen(&two, view(Some(640), Some(360))), Some(0));
        let low = [layer(1, Some(180), true), layer(2, Some(360), false), layer(0, Some(720), false)];
        assert_eq!(chosen(&low, view(Some(640), Some(360))), Some(1));
        let unknown = [layer(1, None, true), layer(2, None, true)];
        assert_eq!(chosen(&unknown, view(Some(10), Some(10))), Some(2));
        assert_eq!(chosen(&[layer(0, None, false)], View::default()), None);
        assert_eq!(chosen(&[], View::default()), None);
    }

    /// Who is not sent what it would like wishes for it still, or its publisher would never know.
    #[test]
    fn what_has_stopped_is_wished_for_and_what_has_not_come_may_be_better() {
        let wished = |layers: &[LayerInfo], view: View| choose(layers, &view).wished.iter().collect::<Vec<_>>();
        let stopped = [layer(1, Some(180), true), layer(2, Some(360), false), layer(0, Some(720), false)];
        assert_eq!(wished(&stopped, view(None, Some(360))), [1, 2]);
        assert_eq!(wished(&stopped, View::default()), [0, 1, 2]);
        assert_eq!(wished(&stopped, view(None, Some(90))), [1]);
        let begun = [layer(2, None, false), layer(0, Some(180), true), layer(1, Some(360), true)];
        assert_eq!(wished(&begun, View::default()), [1, 2]);
        assert_eq!(wished(&begun, view(None, Some(180))), [0], "this one will do");
        assert_eq!(wished(&[layer(0, None, false), layer(1, None, false)], View::default()), [0, 1]);
        assert_eq!(wished(&[], View::default()), [0u8; 0]);
        let silent = [layer(1, Some(180), false), layer(2, Some(360), false), layer(0, Some(720), false)];
        assert_eq!(wished(&silent, View::default()), [0, 1, 2]);
        assert_eq!(wished(&silent, view(None, Some(360))), [1, 2]);
        let larger = [layer(1, Some(180), false), layer(2, Some(360), false), layer(0, Some(720), true)];
        assert_eq!(wished(&larger, view(None, Some(180))), [1], "what comes is followed anyway");
    }

    #[test]
    fn spatial_layers_that_are_of_no_use_are_left_out() {
        // Three layers: 320 × 180, 640 × 360, 1280 × 720 (RFC 9628 §4.2.1).
        let structure = [10, 2 << 5 | 16, 1, 64, 0, 180, 2, 128, 1, 104, 5, 0, 2, 208];
        let spatial = Codec::Vp9.spatial_sizes(&structure);
        let info = LayerInfo { spatial, ..layer(0, Some(720), true) };
        let max = |height| choose(&[info], &view(None, height)).now.unwrap().max.spatial;
        assert_eq!([Some(180), Some(360), Some(720), Some(2_000), None].map(max), [0, 1, 7, 7, 7]);
        let single = LayerInfo { spatial: Codec::Vp9.spatial_sizes(&structure[..0]), ..info };
        assert_eq!(choose(&[single], &view(None, Some(10))).now.unwrap().max.spatial, 7);
    }

    #[test]
    fn frames_that_are_of_no_use_are_left_out_by_halves() {
        let info = layer(0, None, true);
        let max = |fps_max| choose(&[info], &View { fps_max, ..View::default() }).now.unwrap().max.temporal;
        assert_eq!([None, Some(60), Some(30), Some(16)].map(max), [7; 4]);
        assert_eq!([Some(15), Some(8), Some(7), Some(1), Some(0)].map(max), [1, 1, 0, 0, 0]);
        let single = LayerInfo { temporal_max: 0, ..info };
        assert_eq!(temporal_max(&single, &View { fps_max: Some(1), ..View::default() }), 7, "nothing can be left out");
        let unknown = LayerInfo { fps: None, ..info };
        assert_eq!(temporal_max(&unknown, &View { fps_max: Some(1), ..View::default() }), 7);
    }
}
