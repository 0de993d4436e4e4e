//! An ordinary call that must not notice what happens beside it.

use super::client::{PublishOptions, Publisher, ViewOptions, Viewer};
use super::http::Api;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(30);

/// One who publishes and one who views, in the room `calm`.
pub struct Call {
    /// Publishes.
    pub ann: Publisher,
    /// Views.
    pub bob: Viewer,
}

impl Call {
    /// Begins, and is whole.
    pub fn start(api: &Api) -> Self {
        let ann = Publisher::start(api, "calm", "ann", PublishOptions::default());
        let bob = Viewer::start(api, "calm", ViewOptions::default());
        let call = Self { ann, bob };
        call.goes_on();
        call
    }

    /// A hundred more packets of both, and not a hole in all that was.
    pub fn goes_on(&self) {
        let streams = [self.ann.audio_stream(), self.ann.video_stream()];
        self.bob.wait_for_more(&streams, 100, SOON).assert_whole();
    }
}
