//! The TTL function of the paper and the C yardstick, fused with itself: one node for the whole chain.

use netbricks_core::{Operator, Registry, compose};
use netbricks_functions::ttl::{TtlConfig, ttl_of_all};

macro_rules! fused {
    (@ $chain:expr, $config:ident, $worker:ident,) => { $chain };
    (@ $chain:expr, $config:ident, $worker:ident, + $($more:tt)*) => {
        fused!(@ $chain.then(|input| ttl_of_all(input, $config, $worker)), $config, $worker, $($more)*)
    };
    ($registry:ident, $($name:literal: [$($more:tt)*])*) => {$(
        $registry.add($name, "The TTL function fused with itself.", |config: &TtlConfig, worker| {
            compose(worker, |input| fused!(@ ttl_of_all(input, config, worker), config, worker, $($more)*))
        });
    )*};
}

/// Adds `ttl-fused-N`, for the measured chains.
pub(super) fn register(registry: &mut Registry) {
    fused! { registry,
        "ttl-fused-1": []
        "ttl-fused-2": [+]
        "ttl-fused-4": [+ + +]
        "ttl-fused-8": [+ + + + + + +]
        "ttl-fused-16": [+ + + + + + + + + + + + + + +]
        "ttl-fused-64": [+ + + + + + + + + + + + + + + + + + + + + + + + + + + + + + +
            + + + + + + + + + + + + + + + + + + + + + + + + + + + + + + + +]
    }
}
