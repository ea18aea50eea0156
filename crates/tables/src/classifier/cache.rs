//! One worker's results of known flows.
use super::*;
/// Placeholder.
#[derive(Debug, Default)]
pub struct MatchCache;
impl MatchCache {
    /// x
    pub fn new(_: usize, _: u64) -> Self {
        Self
    }
    /// x
    pub fn matches(&mut self, c: &Classifier, key: &[u32], m: &mut Matches) {
        c.matches(key, m)
    }
    /// x
    pub fn first(&mut self, c: &Classifier, key: &[u32]) -> Option<u32> {
        c.first(key)
    }
    /// x
    pub fn matches_batch(&mut self, c: &Classifier, keys: &Keys, m: &mut [Matches]) {
        c.matches_batch(keys, m)
    }
}
