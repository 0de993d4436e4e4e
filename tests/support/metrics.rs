//! `/metrics` as a test reads it.

use super::http::Api;
use std::collections::BTreeMap;

/// Sums of the samples (Prometheus text format 0.0.4) by name, over all labels.
#[derive(Debug, Clone, Default)]
pub struct Metrics(pub BTreeMap<String, f64>);

impl Metrics {
    /// What a server says now.
    pub fn of(api: &Api) -> Self {
        let answer = api.get("/metrics");
        assert_eq!(answer.status, 200);
        let mut sums = BTreeMap::new();
        for line in answer.body.lines().filter(|line| !line.starts_with('#')) {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let name = series.split('{').next().unwrap_or(series);
            *sums.entry(name.to_owned()).or_insert(0.0) += value.parse::<f64>().unwrap_or(f64::NAN);
        }
        Self(sums)
    }

    /// One sum.
    ///
    /// # Panics
    /// When there is no sample of that name: one that was renamed must not read as 0.
    pub fn get(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or_else(|| panic!("no metric {name}; there are {:?}", self.0.keys()))
    }

    /// Sum over all names that hold `part`.
    pub fn all_with(&self, part: &str) -> f64 {
        self.0.iter().filter(|(name, _)| name.contains(part)).map(|(_, value)| value).sum()
    }
}
