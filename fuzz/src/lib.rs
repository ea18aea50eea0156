//! Checks that the fuzz targets share with the crates' own tests.

#[path = "../../crates/control/tests/server/exercise.rs"]
mod bodies;
#[path = "../../crates/ports/tests/capture/exercise.rs"]
mod capture;
#[path = "../../crates/functions/tests/echo/exercise.rs"]
mod echo;
#[path = "../../crates/packet/tests/packet/exercise.rs"]
mod exercise;
#[path = "../../crates/core/tests/filter/exercise.rs"]
mod filter;
#[path = "../../crates/tables/tests/import/exercise.rs"]
mod import;
#[path = "../../crates/control/tests/store/exercise.rs"]
mod journal;
#[path = "../../crates/mmb/tests/language/exercise.rs"]
mod language;
#[path = "../../crates/mmb/tests/import/exercise.rs"]
mod mmb_import;
#[path = "../../crates/stream/tests/streams/model.rs"]
mod model;
#[path = "../../crates/packet/tests/packet/oracles.rs"]
mod oracles;
#[path = "../../crates/stream/tests/streams/rewritten.rs"]
mod rewritten;
#[path = "../../crates/stream/tests/streams/exercise.rs"]
mod streams;

pub use bodies::{Outcome as BodyOutcome, api_body};
pub use capture::capture;
pub use echo::{Answer, frame as echo_frame, message as echo_message};
pub use exercise::{changes, difference, flow_key, header, parsers, printing};
pub use filter::filter;
pub use import::{Outcome, flow_import};
pub use journal::{Outcome as JournalOutcome, journal};
pub use language::language as mmb_language;
pub use mmb_import::import as mmb_import;
pub use oracles::{flow, ipv4_options, ipv6_extensions, tcp_options, usual};
pub use rewritten::rewritten;
pub use streams::{connections, streams};
