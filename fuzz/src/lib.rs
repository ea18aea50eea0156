//! Checks that the fuzz targets share with the crates' own tests.

#[path = "../../crates/control/tests/server/exercise.rs"]
mod bodies;
#[path = "../../crates/functions/tests/bras/exercise.rs"]
mod bras_exercise;
#[path = "../../crates/ports/tests/capture/exercise.rs"]
mod capture;
#[path = "../../crates/click/tests/robust/exercise.rs"]
pub mod click;
#[path = "../../crates/functions/tests/echo/exercise.rs"]
mod echo;
#[path = "../../crates/packet/tests/packet/exercise.rs"]
mod exercise;
#[path = "../../crates/mmb/tests/rules/exercise.rs"]
mod explained;
#[path = "../../crates/core/tests/filter/exercise.rs"]
mod filter;
#[path = "../../crates/functions/tests/firewall/exercise.rs"]
mod firewall;
#[path = "../../crates/tables/tests/import/exercise.rs"]
mod import;
#[path = "../../crates/control/tests/store/exercise.rs"]
mod journal;
#[path = "../../crates/mmb/tests/language/exercise.rs"]
mod language;
#[path = "../../crates/ports/tests/memif/exercise.rs"]
mod memif;
#[path = "../../crates/mmb/tests/import/exercise.rs"]
mod mmb_import;
#[path = "../../crates/stream/tests/streams/model.rs"]
mod model;
#[path = "../../crates/functions/tests/nat/exercise.rs"]
mod nat;
#[path = "../../crates/packet/tests/packet/oracles.rs"]
mod oracles;
#[path = "../../crates/stream/tests/streams/rewritten.rs"]
mod rewritten;
#[path = "../../crates/functions/tests/router/exercise.rs"]
mod routed;
#[path = "../../crates/sandbox/tests/robust/exercise.rs"]
pub mod sandbox;
#[path = "../../crates/functions/tests/signatures/exercise.rs"]
mod signatures;
#[path = "../../crates/stream/tests/streams/exercise.rs"]
mod streams;

pub use bodies::{Outcome as BodyOutcome, api_body};
pub use bras_exercise::{frames as bras, steady as bras_steady};
pub use capture::capture;
pub use echo::{Answer, frame as echo_frame, message as echo_message};
pub use exercise::{changes, difference, flow_key, header, parsers, printing};
pub use explained::explained as mmb_explain;
pub use filter::filter;
pub use firewall::rules as firewall_rules;
pub use import::{Outcome, flow_import};
pub use journal::{Outcome as JournalOutcome, journal};
pub use language::language as mmb_language;
pub use memif::message as memif_message;
pub use mmb_import::import as mmb_import;
pub use nat::{frames as nat_frames, run as nat};
pub use oracles::{flow, ipv4_options, ipv6_extensions, tcp_options, usual};
pub use rewritten::rewritten;
pub use routed::frames as router;
pub use signatures::signatures;
pub use streams::{connections, streams};
