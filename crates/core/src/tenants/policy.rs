//! The share of a worker that a tenant has.

/// A tenant's share of each worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantPolicy {
    /// Its name.
    pub name: String,
    /// Its part of the time that tenants of its priority share, relative to their weights; 1 to 10,000.
    pub weight: u32,
    /// Its strict class: tenants of a lower number come first; 0 to 7.
    pub priority: u8,
    /// The most time that it gets, in thousandths of each worker's time; `None` for no limit.
    pub ceiling: Option<u32>,
}

/// Why a tenant's share is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TenantPolicyError {
    /// A weight of 0, or too large a one.
    #[error("must be 1 to 10000, found {0}: a tenant without weight would never run")]
    Weight(u32),
    /// A strict class that does not exist.
    #[error("must be 0 to 7, found {0}")]
    Priority(u8),
    /// A ceiling of nothing, or above the whole.
    #[error("must be above 0 % and at most 100 %, found {} %", f64::from(*.0) / 10.0)]
    Ceiling(u32),
}

impl TenantPolicy {
    /// The largest weight.
    pub const HEAVIEST: u32 = 10_000;
    /// The last strict class.
    pub const LAST: u8 = 7;

    /// A tenant of weight 1 in the middle class, without a ceiling.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), weight: 1, priority: 4, ceiling: None }
    }

    /// Whether the scheduler takes it.
    ///
    /// # Errors
    /// [`TenantPolicyError`].
    pub fn check(&self) -> Result<(), TenantPolicyError> {
        if !(1..=Self::HEAVIEST).contains(&self.weight) {
            return Err(TenantPolicyError::Weight(self.weight));
        }
        if self.priority > Self::LAST {
            return Err(TenantPolicyError::Priority(self.priority));
        }
        match self.ceiling {
            Some(ceiling) if !(1..=1_000).contains(&ceiling) => Err(TenantPolicyError::Ceiling(ceiling)),
            _ => Ok(()),
        }
    }
}
